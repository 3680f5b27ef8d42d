"""Thresholds: the open score from which on a photo is called unknown, what it promises and how far to trust that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from glocal_runtime.door import check_record
from glocal_runtime.errors import DataError, RecipeError

SOURCES = ("leave-one-out", "score model", "mixed", "known unknowns", "user", "none")
LEAST_SHARE = 1e-4
BETA_DRAWS = 4_000  # of the share of known photos above an order statistic, for its interval


class LeftOut(NamedTuple):
    """What a support photo scores when its class is enrolled without it."""

    label: int
    shots: int  # photos that were left of the class
    score: float  # open score
    photo: int = 0  # its row in the support
    nearest: int = 0  # the class it would have been given
    parts: Mapping[str, float] = MappingProxyType({})  # of the open score


@dataclass(frozen=True)
class Threshold:
    """A photo is called unknown when its open score is above ``value``; ``inf`` calls nothing unknown."""

    value: float
    max_false_unknown: float  # what was asked for: the largest share of known photos that may be called unknown
    expected: float | None  # that share over tasks like this one, None when nothing can be said
    interval: tuple[float, float] | None  # 95 % of such tasks lie in it
    source: str  # one of SOURCES
    n_scores: int = 0  # leave-one-out scores it rests on
    extrapolated: bool = False  # more classes or photos than the score model was fitted on
    per_class: tuple[float, ...] | None = None  # one value per class: a photo is held against that of its best class
    midpoint: float | None = None  # P(unknown) is a half there, if half of the photos are unknown, and its logit rises
    slope: float | None = None  # by this per unit of the open score
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise RecipeError(f"the source of a threshold must be one of {', '.join(SOURCES)}, got {self.source!r}")
        if math.isnan(self.value):
            raise RecipeError("a threshold must be a number, got nan")
        rest = (self.expected, self.midpoint, self.slope, *(self.interval or ()), *(self.per_class or ()))
        if not all(each is None or math.isfinite(each) for each in rest):
            raise RecipeError("what belongs to a threshold must be finite, got a number that is not", code="not-finite")

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite threshold is written as None, because JSON has no infinity."""
        fields = asdict(self)
        return fields | {"value": self.value if math.isfinite(self.value) else None}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Threshold:
        if not isinstance(fields, dict) or not {"value", "max_false_unknown"} <= fields.keys() <= _FIELDS:
            raise DataError(f"a threshold must be a table of {', '.join(sorted(_FIELDS))}, got {fields!r}")
        check_record(cls, fields if fields["value"] is not None else fields | {"value": 0.0})
        value = math.inf if fields["value"] is None else float(fields["value"])
        lists = {n: tuple(fields[n]) for n in ("interval", "per_class", "warnings") if fields.get(n) is not None}
        given: dict[str, Any] = {"expected": None, "interval": None, "source": "user", **fields}
        return cls(**(given | {"value": value} | lists))


_FIELDS = set(Threshold.__dataclass_fields__)


def check_promise(max_false_unknown: float) -> float:
    """The share as it is, or a refusal: for less than ``LEAST_SHARE``, no number of photos would be enough."""
    if not LEAST_SHARE <= max_false_unknown <= 1 - LEAST_SHARE:
        raise RecipeError(
            f"max_false_unknown must be a share between {LEAST_SHARE} and {1 - LEAST_SHARE} (0.05 is 5 %), "
            f"got {max_false_unknown}; to call nothing unknown set the threshold itself"
        )
    return max_false_unknown


def plain_threshold(
    *,
    shots: Sequence[int],
    left_out: Sequence[LeftOut],
    max_false_unknown: float = 0.05,
    unknown_scores: Sequence[float] = (),
    per_class: bool = False,
) -> Threshold:
    """For heads without a score model: the conformal quantile of the leave-one-out scores and nothing else.

    With n of them the k-th smallest, k = ceil((1 - a)(n + 1)), is exceeded by at most the share a of new photos that
    are drawn like these.  Each met a class with one photo less, so the true share is, if anything, smaller.
    ``unknown_scores`` raise the value to their midpoint with it where all of them lie above: that costs none of them.
    """
    check_promise(max_false_unknown)
    scores = np.sort([one.score for one in left_out])
    if not len(scores):
        return _without_scores(len(shots), max_false_unknown, np.sort(unknown_scores))
    value, expected, interval, warnings = _order_statistic(scores, max_false_unknown)
    if len(unknown_scores) and min(unknown_scores) > value:
        value = (value + min(unknown_scores)) / 2
    values = None
    if per_class:
        own = [np.sort([one.score for one in left_out if one.label == c]) for c in range(len(shots))]
        values = tuple(_order_statistic(s, max_false_unknown)[0] if len(s) else value for s in own)
    return Threshold(
        value,
        max_false_unknown,
        expected,
        interval,
        "leave-one-out",
        n_scores=len(scores),
        per_class=values,
        warnings=warnings,
    )


def _order_statistic(
    scores: np.ndarray[Any, Any], share: float
) -> tuple[float, float, tuple[float, float], tuple[str, ...]]:
    """Sorted scores (n,) -> the value, the share of new scores expected above it, its 95 % interval, warnings."""
    n = len(scores)
    k = math.ceil((1 - share) * (n + 1) - 1e-9)
    warnings: tuple[str, ...] = ()
    if k > n:
        k = n
        warnings = (
            f"too few photos to promise {100 * share:g} %: {n} leave-one-out score{'s' if n > 1 else ''} can promise "
            f"{100 / (n + 1):.2g} % at best; {math.ceil(1 / share) - 1} would do",
        )
    above = np.random.default_rng(0).beta(n + 1 - k, k, size=BETA_DRAWS)  # exact if photos are drawn independently
    low, high = np.quantile(above, [0.025, 0.975])
    return float(scores[k - 1]), (n + 1 - k) / (n + 1), (float(low), float(high)), warnings


def _without_scores(way: int, share: float, unknown: np.ndarray[Any, Any]) -> Threshold:
    nothing = (
        f"nothing can be promised from one photo per class ({way} {'class' if way == 1 else 'classes'}) by a head that "
        "carries no score model: add a second photo to some class, or use a head that carries one (photos-gel)"
    )
    if len(unknown):
        value = float(np.quantile(unknown, share))
        how = f"the threshold lets {100 * share:g} % of the known unknowns pass and says nothing about known photos"
        return Threshold(value, share, None, None, "known unknowns", warnings=(nothing, how))
    how = "until then nothing is called unknown, unless a threshold is set by hand"
    return Threshold(math.inf, share, None, None, "none", warnings=(nothing, how))
