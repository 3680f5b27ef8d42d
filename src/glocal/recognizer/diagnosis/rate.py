"""k of n, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

Z95 = 1.959963984540054


@dataclass(frozen=True)
class Rate:
    """k of n, with the 95 % interval of Wilson: honest for few pictures and for rates near 0 and 1.

    ``groups``: pictures of one class come out alike, so an interval for other classes rests on so many classes and not
    on n pictures.
    """

    k: int
    n: int
    groups: int | None = None

    @property
    def value(self) -> float:
        return self.k / self.n if self.n else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        if not self.n:
            return (0.0, 1.0)
        n = self.n if self.groups is None else self.groups
        centre = (self.value * n + Z95**2 / 2) / (n + Z95**2)
        half = Z95 / (n + Z95**2) * math.sqrt(self.value * (1 - self.value) * n + Z95**2 / 4)
        return (max(0.0, centre - half), min(1.0, centre + half))

    def __str__(self) -> str:
        if not self.n:
            return "no pictures"
        low, high = self.interval
        return f"{100 * self.value:.1f} % ({self.k} of {self.n}; 95 % interval {100 * low:.1f} to {100 * high:.1f} %)"

    def to_json(self) -> dict[str, Any]:
        return {"k": self.k, "n": self.n, "value": self.value if self.n else None, "interval": list(self.interval)}
