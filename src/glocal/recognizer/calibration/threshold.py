"""Thresholds: the open score from which on a photo is called unknown, what it promises and how far to trust that."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from glocal.common.errors import DataError, RecipeError
from glocal.common.validation import check_record

SOURCES = ("leave-one-out", "one photo", "score model", "mixed", "known unknowns", "user", "none")
LEAST_SHARE = 1e-4


class LeftOut(NamedTuple):
    """What a support photo scores when its class is enrolled without it, or otherwise than it is."""

    label: int
    shots: int  # photos that were left of the class
    score: float  # open score
    photo: int = 0  # its row in the support
    nearest: int = 0  # the class it would have been given
    parts: Mapping[str, float] = MappingProxyType({})  # of the open score


@dataclass(frozen=True)
class Threshold:
    """A photo is called unknown when its open score is above ``value``; ``inf`` calls nothing unknown.

    With ``per_class`` it is held against the value of the class it is nearest to, and ``value`` is their mean.
    """

    value: float
    max_false_unknown: float  # what was asked for: the largest share of known photos that may be called unknown
    expected: float | None  # that share over tasks like this one, None when nothing can be said
    interval: tuple[float, float] | None  # 95 % of such tasks lie in it
    source: str  # one of SOURCES
    n_scores: int = 0  # leave-one-out scores it rests on
    per_class: tuple[float, ...] | None = None  # one value per class
    spread: float | None = None  # of known photos around the level of their class, the unit of probabilities
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise RecipeError(f"the source of a threshold must be one of {', '.join(SOURCES)}, got {self.source!r}")
        if math.isnan(self.value) or self.value == -math.inf:
            raise RecipeError(f"a threshold must be a number, or inf to call nothing unknown, got {self.value}")
        rest = (self.expected, self.spread, *(self.interval or ()), *(self.per_class or ()))
        if not all(each is None or math.isfinite(each) for each in rest):
            raise RecipeError("what belongs to a threshold must be finite, got a number that is not", code="not-finite")
        for name in ("max_false_unknown", "expected", "interval"):
            rate = getattr(self, name)
            rates = rate if isinstance(rate, tuple) else (rate,)
            if not all(each is None or 0 <= each <= 1 for each in rates):
                raise RecipeError(f"{name} of a threshold must lie between 0 and 1, got {rate}", code="bad-rate")

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite threshold is written as None, because JSON has no infinity."""
        fields = asdict(self)
        return fields | {"value": self.value if math.isfinite(self.value) else None}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Threshold:
        """From what ``to_json`` gave; anything else is refused."""
        if not isinstance(fields, dict) or not {"value", "max_false_unknown"} <= fields.keys() <= _FIELDS:
            raise DataError(f"a threshold must be a table of {', '.join(sorted(_FIELDS))}, got {fields!r}")
        check_record(cls, fields if fields["value"] is not None else fields | {"value": 0.0})
        value = math.inf if fields["value"] is None else float(fields["value"])
        lists = {n: tuple(fields[n]) for n in ("interval", "per_class", "warnings") if fields.get(n) is not None}
        given: dict[str, Any] = {"expected": None, "interval": None, "source": "user", **fields}
        return cls(**(given | {"value": value} | lists))


_FIELDS = set(Threshold.__dataclass_fields__)


def check_promise(share: float, name: str = "max_false_unknown") -> float:
    """The share as it is, or a refusal: for less than ``LEAST_SHARE``, no number of photos would be enough."""
    if not LEAST_SHARE <= share <= 1 - LEAST_SHARE:
        raise RecipeError(
            f"{name} must be a share between {LEAST_SHARE} and {1 - LEAST_SHARE} (0.05 is 5 %), "
            f"got {share}; to call nothing unknown set the threshold itself"
        )
    return share
