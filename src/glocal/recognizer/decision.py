"""The threshold of a recognizer: what it was computed for, its value, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from glocal.common.errors import DataError, RecipeError
from glocal.common.validation import check_record
from glocal.recognizer.calibration.leave_one_out import LeftOut, Measured
from glocal.recognizer.features import ClassMaps, Features, Labels

Array = npt.NDArray[np.float64]
Range = tuple[float, float]
SOURCES = ("leave-one-out", "one photo", "known unknowns", "user", "none")
LEAST_SHARE = 1e-4
USUAL = (0.025, 0.975)  # the share of known photos that a usual range spans
WIDEST = 0.9  # of all patches: a range as wide as that says nothing
AT_ONCE = 256  # photos whose patches are matched together: of 50,000 they would be gigabytes


@dataclass(frozen=True)
class Promise:
    """What the threshold is computed for."""

    target_rate: float = 0.05  # share of known photos called unknown, on average
    with_unknown: float | None = None  # what known unknowns may raise that share to, if they are caught by it

    def __post_init__(self) -> None:
        check_promise(self.target_rate)
        if self.with_unknown is not None and check_promise(self.with_unknown, "with_unknown") < self.target_rate:
            raise RecipeError(
                f"with_unknown is the share of false unknowns that known unknowns may raise target_rate to, so it is "
                f"at least {self.target_rate:g}, got {self.with_unknown:g}",
                code="promise",
            )


@dataclass(frozen=True)
class Threshold:
    """A photo is called unknown when its open score, without the level of its nearest class, is above ``value``.

    ``inf`` calls nothing unknown.
    """

    value: float
    target_rate: float
    expected: float | None  # false unknowns over tasks like this one, None when nothing can be said
    interval: tuple[float, float] | None  # their 95 % prediction interval
    source: str  # one of SOURCES
    n_scores: int = 0  # leave-one-out scores it rests on
    levels: tuple[float, ...] = ()  # of the classes, around 0; empty where none differ
    spread: float | None = None  # of known photos, the unit of probabilities
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise RecipeError(f"the source of a threshold must be one of {', '.join(SOURCES)}, got {self.source!r}")
        if math.isnan(self.value) or self.value == -math.inf:
            raise RecipeError(f"a threshold must be a number, or inf to call nothing unknown, got {self.value}")
        rest = (self.expected, self.spread, *(self.interval or ()), *self.levels)
        if not all(each is None or math.isfinite(each) for each in rest):
            raise RecipeError("what belongs to a threshold must be finite, got a number that is not", code="not-finite")
        for name in ("target_rate", "expected", "interval"):
            rate = getattr(self, name)
            rates = rate if isinstance(rate, tuple) else (rate,)
            if not all(each is None or 0 <= each <= 1 for each in rates):
                raise RecipeError(f"{name} of a threshold must lie between 0 and 1, got {rate}", code="bad-rate")
        if self.interval is not None and self.interval[0] > self.interval[1]:
            raise RecipeError(f"interval of a threshold must go up, got {self.interval}", code="bad-rate")
        if self.spread is not None and self.spread < 0:
            raise RecipeError(f"spread of a threshold must not be negative, got {self.spread}", code="bad-rate")

    def levelled(self, score: Any, nearest: Any) -> Array:
        """Open scores (Q,) without the levels of their nearest classes (Q,)."""
        score = np.asarray(score, dtype=np.float64)
        return np.asarray(score - np.array(self.levels)[nearest] if self.levels else score)

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite threshold is written as None, because JSON has no infinity."""
        fields = asdict(self)
        return fields | {"value": self.value if math.isfinite(self.value) else None}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Threshold:
        """From what ``to_json`` gave; anything else is refused."""
        if not isinstance(fields, dict) or not {"value", "target_rate"} <= fields.keys() <= _FIELDS:
            raise DataError(f"a threshold must be a table of {', '.join(sorted(_FIELDS))}, got {fields!r}")
        check_record(cls, fields if fields["value"] is not None else fields | {"value": 0.0})
        value = math.inf if fields["value"] is None else float(fields["value"])
        lists = {n: tuple(fields[n]) for n in ("interval", "levels", "warnings") if fields.get(n) is not None}
        given: dict[str, Any] = {"expected": None, "interval": None, "source": "user", **fields}
        return cls(**(given | {"value": value} | lists))


_FIELDS = set(Threshold.__dataclass_fields__)


@dataclass(frozen=True)
class Decision:
    """The threshold and what it rests on."""

    threshold: Threshold
    measured: Measured = field(default_factory=Measured)
    usual: dict[str, Range] = field(default_factory=dict)  # of the open score, its parts and the matching patches

    @property
    def by_hand(self) -> bool:
        return self.threshold.source == "user"

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        return self.measured.left_out

    def levelled(self, some: Sequence[LeftOut]) -> Array:
        """Their open scores as they are compared with the threshold."""
        nearest = np.array([each.nearest for each in some], dtype=np.int64)
        return self.threshold.levelled([each.score for each in some], nearest)


def check_promise(share: float, name: str = "target_rate") -> float:
    """The share as it is, or a refusal: for less than ``LEAST_SHARE``, no number of photos would be enough."""
    if not LEAST_SHARE <= share <= 1 - LEAST_SHARE:
        raise RecipeError(
            f"{name} must be a share between {LEAST_SHARE} and {1 - LEAST_SHARE} (0.05 is 5 %), "
            f"got {share}; to call nothing unknown set the threshold itself"
        )
    return share


def nothing_known(share: float, unknown: Sequence[float]) -> Threshold:
    """For too few photos of a single class: all that can decide are the scores of known unknowns."""
    if unknown:
        caution = f"the threshold lets {100 * share:g} % of the known unknowns pass and says nothing about known photos"
        return Threshold(float(np.quantile(unknown, share)), share, None, None, "known unknowns", warnings=(caution,))
    nothing = (
        "nothing can be promised from so few photos of a single class, so nothing is called unknown. Add photos, a "
        "second class or known unknowns (--unknown DIR), or set a threshold by hand"
    )
    return Threshold(math.inf, share, None, None, "none", warnings=(nothing,))


def few_photos(shots: Sequence[int], source: str, high: float) -> tuple[str, ...]:
    """What a threshold from so few photos cannot tell; ``high`` is the upper end of its prediction interval."""
    if source == "one photo":
        few = "one photo per class" if max(shots) == 1 else "too few photos to measure by"
        return (
            f"{few}: the threshold rests on how the classes look to each other. Up to {100 * high:.0f} % of known "
            "photos may be called unknown; a second and third photo of each class make it a measurement",
        )
    if len(shots) > 1 and min(shots) == 1 < max(shots):
        return (
            "classes with one photo beside others with more: their own photos are called unknown, or by another name, "
            "more often than the target rate says",
        )
    return ()


def usual_ranges(
    threshold: Threshold, left: Sequence[LeftOut], features: Features, label: Labels, maps: ClassMaps | None
) -> dict[str, Range]:
    """By name: where photos of the enrolled classes lie; without what is not known, or says nothing."""
    values: dict[str, list[float]] = {"open_score": Decision(threshold).levelled(left).tolist()}
    for each in left:
        for name, value in each.parts.items():
            values.setdefault(name, []).append(value)
    ranges: dict[str, Range] = {
        name: tuple(np.quantile(numbers, USUAL).tolist()) for name, numbers in values.items() if len(numbers) > 1
    }
    if maps is not None and (local := features.map) is not None and len(left) > 1:
        matching: list[int] = []
        for start in range(0, len(left), AT_ONCE):
            rows = np.array([each.photo for each in left[start : start + AT_ONCE]])
            matching += maps.match_without(local[rows], label[rows]).sum(axis=1).tolist()
        low, high = np.quantile(matching, USUAL).tolist()
        if high - low < WIDEST * maps.n_patches:
            ranges["patches"] = low, high
    return ranges
