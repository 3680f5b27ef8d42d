"""k of n, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

Z95 = 1.959963984540054


@dataclass(frozen=True)
class Rate:
    """k of n, with the 95 % interval of Wilson: honest for few pictures and for rates near 0 and 1."""

    k: int
    n: int

    @property
    def value(self) -> float:
        return self.k / self.n if self.n else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        if not self.n:
            return (0.0, 1.0)
        centre = (self.k + Z95**2 / 2) / (self.n + Z95**2)
        half = Z95 / (self.n + Z95**2) * math.sqrt(self.k * (self.n - self.k) / self.n + Z95**2 / 4)
        return (max(0.0, centre - half), min(1.0, centre + half))

    def __str__(self) -> str:
        if not self.n:
            return "no pictures"
        low, high = self.interval
        return f"{100 * self.value:.1f} % ({self.k} of {self.n}; 95 % interval {100 * low:.1f} to {100 * high:.1f} %)"

    def to_json(self) -> dict[str, Any]:
        return {"k": self.k, "n": self.n, "value": self.value if self.n else None, "interval": list(self.interval)}
