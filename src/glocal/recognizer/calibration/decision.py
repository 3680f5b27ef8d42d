"""Where "unknown" begins: the threshold with its promise, probabilities, and the ranges that photos usually lie in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from glocal.recognizer.calibration.leave_one_out import Measured
from glocal.recognizer.calibration.limits import Limits, limits
from glocal.recognizer.calibration.threshold import LeftOut, Threshold
from glocal.recognizer.features import Array, ClassMaps, Features, Labels
from glocal.recognizer.heads.head import Scores

USUAL = (0.025, 0.975)  # the share of known photos that a usual range spans
STEEP = 1.5  # by how much the log odds of "unknown" rise per spread
WORTH = 1.5  # what a left-out score says about the rate, in photos: intervals made so held 98 % of measured tasks
SINGLE_WORTH = 6.0  # what a support of single photos says, in left-out scores
WIDE = 5.0  # times the promise, from which on what may come out is worth a warning
DRAWS = 4_000
STEPS = 12  # promises that are tried between what was asked for and what known unknowns may cost
AT_ONCE = 256  # photos whose patches are matched together: of 50,000 they would be gigabytes

Range = tuple[float, float]


@dataclass(frozen=True)
class Promise:
    """What the threshold is to keep when it is computed."""

    max_false_unknown: float = 0.05
    per_class: bool = True
    with_unknown: float | None = None  # what known unknowns may raise that share to, if they are caught by it


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

    def limits(self, nearest: Array) -> Array:
        """(Q,) the open score from which on a photo of that nearest class is unknown."""
        if self.threshold.per_class is None:
            return np.full(nearest.shape, self.threshold.value)
        return np.array(self.threshold.per_class)[nearest]


def compute_threshold(promise: Promise, shots: Sequence[int], measured: Measured) -> Threshold:
    """The threshold for classes with so many photos each.

    Known unknowns lower it, when the promise allows that, to where false and missed unknowns are fewest together.
    """
    share = promise.max_false_unknown
    found = limits(shots, measured, share)
    if found is None:
        return _nothing_known(share, measured)
    if promise.with_unknown is not None and measured.unknown:
        share, found = _lowered(promise, shots, measured, found)
    worth = WORTH * found.scores or SINGLE_WORTH
    above = np.random.default_rng(0).beta(share * worth, (1 - share) * worth, DRAWS)
    low, high = np.quantile(above, [0.025, 0.975])
    return Threshold(
        float(found.per_class.mean()) if promise.per_class else found.overall,
        promise.max_false_unknown,
        share,
        (float(low), float(high)),
        found.source,
        n_scores=found.scores,
        per_class=tuple(found.per_class.tolist()) if promise.per_class else None,
        spread=found.spread,
        warnings=tuple(_warnings(shots, found, share, float(high))),
    )


def _lowered(promise: Promise, shots: Sequence[int], measured: Measured, found: Limits) -> tuple[float, Limits]:
    """The share between what was promised and what is allowed at which false and missed unknowns are fewest."""
    assert promise.with_unknown is not None
    scores = np.array([each.score for each in measured.unknown])
    nearest = np.array([each.nearest for each in measured.unknown])
    best, cost = (promise.max_false_unknown, found), math.inf
    for share in np.linspace(promise.max_false_unknown, max(promise.with_unknown, promise.max_false_unknown), STEPS):
        tried = limits(shots, measured, float(share))
        assert tried is not None
        value = tried.per_class[nearest] if promise.per_class else tried.overall
        here = float(share) + float((scores <= value).mean())
        if here < cost - 1e-9:
            best, cost = (float(share), tried), here
    return best


def _nothing_known(share: float, measured: Measured) -> Threshold:
    nothing = (
        "nothing can be promised from so few photos of a single class: add photos, or a second class; until then "
        "nothing is called unknown, unless known unknowns (--unknown DIR) are given or a threshold is set by hand"
    )
    if measured.unknown:
        value = float(np.quantile([each.score for each in measured.unknown], share))
        how = f"the threshold lets {100 * share:g} % of the known unknowns pass and says nothing about known photos"
        return Threshold(value, share, None, None, "known unknowns", warnings=(how,))
    return Threshold(math.inf, share, None, None, "none", warnings=(nothing,))


def _warnings(shots: Sequence[int], found: Limits, share: float, high: float) -> list[str]:
    told = []
    if found.source == "one photo":
        few = "one photo per class" if max(shots) == 1 else "too few photos to measure by"
        told.append(
            f"{few}: the threshold rests on how the classes look to each other, and the share of known "
            f"photos called unknown may be anything up to {100 * high:.0f} %; a second and third photo of each class "
            "make it a measurement"
        )
    elif high > WIDE * share:
        told.append(
            f"few photos: {100 * share:g} % is the mean over recognizers like this one, and one of them may call up to "
            f"{100 * high:.0f} % of known photos unknown; more photos of each class narrow that"
        )
    if len(shots) > 1 and min(shots) == 1 and max(shots) > 1:
        told.append(
            "classes with one photo beside others with more: their own photos are called unknown, or by another name, "
            "more often than promised; the other classes are not touched by that"
        )
    return told


def usual_ranges(left: Sequence[LeftOut], views: Features, label: Labels, maps: ClassMaps | None) -> dict[str, Range]:
    """By name: where photos of the enrolled classes lie; empty where nothing is known about that."""
    values: dict[str, list[float]] = {}
    for each in left:
        for name, value in {"open_score": each.score, **each.parts}.items():
            values.setdefault(name, []).append(value)
    if maps is not None and (local := views.map) is not None and left:
        for start in range(0, len(left), AT_ONCE):
            rows = np.array([each.photo for each in left[start : start + AT_ONCE]])
            found = maps.match_without(local[rows], label[rows]).sum(axis=1)
            values.setdefault("patches", []).extend(found.tolist())
    return {name: _range(numbers) for name, numbers in values.items() if len(numbers) > 1}


def probabilities(compared: Scores, decision: Decision) -> Array:
    """(Q, N + 1); the last column is unknown.  The largest of a row is the answer.

    "Unknown" takes part as one more class: at the threshold it is as strong as the best class, and beyond it stronger
    by ``STEEP`` per spread of the known photos.  So the numbers weigh the answers against each other; that they are
    right as often as they say was not promised.
    """
    logits = compared.logits.astype(np.float64)
    best = logits.argmax(axis=1)
    beyond = compared.open_score.astype(np.float64) - decision.limits(best)
    odds = STEEP * beyond / (decision.threshold.spread or 1.0)
    every = np.concatenate([logits - logits.max(axis=1, keepdims=True), odds[:, None]], axis=1)
    every = np.clip(every, -700, 700)
    weight = np.exp(every - every.max(axis=1, keepdims=True))
    shares: Array = weight / weight.sum(axis=1, keepdims=True)
    return shares


def _range(numbers: Sequence[float]) -> Range:
    low, high = np.quantile(numbers, USUAL)
    return float(low), float(high)
