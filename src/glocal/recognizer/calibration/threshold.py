"""Where "unknown" begins: one threshold for all classes, from what the support says about itself.

A photo scores less unknown when its class has more photos, and some classes score higher than others as a whole.  So
the level of the nearest class is taken off every score.  The threshold lies beyond the mean of the leave-one-out scores
by a factor times their spread, and with more scores beyond it at their quantile.  Formulas: docs/threshold.md.  No
constant has the unit of a score, so any head and encoder gets its threshold this way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glocal.recognizer.calibration.leave_one_out import LeftOut, Measured
from glocal.recognizer.decision import Promise, Threshold, few_photos, nothing_known

Array = npt.NDArray[np.float64]


class Constants(NamedTuple):
    """All that was fitted or chosen."""

    fewest: int = 4  # leave-one-out scores, below which strangers decide
    fall: float = 0.3  # of the level, per natural logarithm of the photos
    own_level: float = 15.0  # scores of a class that weigh as much as those of all others
    prior: float = 10.0  # scores that the spread of strangers weighs
    gap_spread: float = 0.35  # spread to expect, in gaps
    tail: tuple[float, float] = (0.86, 0.075)
    few_classes: float = 0.3
    beyond: float = 2.5  # scores beyond a quantile that make it count half
    worth: tuple[float, float] = (20.0, 0.8)  # of the prediction interval: its weight, and the power of the photos
    single_worth: float = 6.0
    single_spread: float = 0.18  # of known photos beside single ones, in gaps
    steps: int = 12  # target rates that are tried for known unknowns
    shares: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
    single: tuple[tuple[float, ...], ...] = (  # at each share: constant, spread of strangers, log classes, how alike
        (1.2330, 0.1678, -0.0062, 0.1688),
        (1.1361, 0.2484, -0.0105, 0.2311),
        (1.0339, 0.3079, -0.0133, 0.2702),
        (0.9813, 0.2857, -0.0120, 0.2338),
        (0.9332, 0.1993, -0.0090, 0.1638),
        (0.8984, 0.1150, -0.0058, 0.1136),
    )


FITTED = Constants()


def compute_threshold(promise: Promise, shots: Sequence[int], measured: Measured) -> Threshold:
    """The threshold for classes with so many photos each.

    Known unknowns lower it, when the promise allows that, to where false and missed unknowns are fewest together.
    """
    share, rule = promise.target_rate, _Rule(shots, measured)
    if not rule.source:
        return nothing_known(share, [each.score for each in measured.unknown])
    if promise.with_unknown is not None and measured.unknown:
        unknown = _columns(measured.unknown)
        score = unknown.score - rule.levels[unknown.nearest]
        tried = np.linspace(share, max(promise.with_unknown, share), FITTED.steps).tolist()
        share = min(tried, key=lambda each: round(each + float((score <= rule.at(each)).mean()), 9))
    low, high = interval(share, rule.worth)
    return Threshold(
        rule.at(share),
        promise.target_rate,
        share,
        (low, high),
        rule.source,
        n_scores=rule.n,
        levels=tuple(rule.levels.tolist()) if rule.levels.any() else (),
        spread=rule.spread,
        warnings=few_photos(shots, rule.source, high),
    )


def interval(share: float, worth: float) -> tuple[float, float]:
    """95 % of what recognizers achieve, as a beta distribution around the share that so many photos would leave."""
    drawn = np.random.default_rng(0).beta(share * worth, (1 - share) * worth, 4_000)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


class _Columns(NamedTuple):
    label: npt.NDArray[np.int64]
    left: Array  # photos that were left of the class
    score: Array
    nearest: npt.NDArray[np.int64]


def _columns(some: Sequence[LeftOut]) -> _Columns:
    rows = [(each.label, max(each.shots, 1), each.score, each.nearest) for each in some]
    label, left, score, nearest = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    return _Columns(label.astype(np.int64), left, score, nearest.astype(np.int64))


class _Rule:
    """The levels, and the threshold as a function of the target rate."""

    def __init__(self, shots: Sequence[int], measured: Measured) -> None:
        some, strange = _columns((*measured.left_out, *measured.confirmed)), _columns(measured.strange).score
        self.source, self.n, self.way, self.spread = "", len(some.score), len(shots), 1.0
        self.levels, self._strange, self._measured = np.zeros(self.way), strange, measured
        self._gap = max(float(strange.mean()) - measured.own, 0.0) if len(strange) else 0.0
        if self.n >= FITTED.fewest:
            self.source = "leave-one-out"
            self._learn(some, np.asarray(shots, dtype=np.float64))
        elif len(strange):
            self.source, self.n, self.worth = "one photo", 0, FITTED.single_worth
            self.spread = self._gap * FITTED.single_spread or 1.0

    def _learn(self, some: _Columns, shots: Array) -> None:
        above = max(float(some.score.mean()) - self._measured.own, 0.0)
        fall = FITTED.fall * (above + (self._gap if len(self._strange) else above)) / 2
        score = some.score + fall * np.log(some.left)
        centre = float(score.mean())
        n = np.bincount(some.label, minlength=self.way)
        total = np.bincount(some.label, score - centre, minlength=self.way)
        levels = total / (n + FITTED.own_level) - fall * np.log(shots)
        others = (total[some.label] - (score - centre)) / (n[some.label] - 1 + FITTED.own_level)
        self._residual = score - others + levels.mean()  # each by the level that the others of its class give
        self.levels = levels - levels.mean()
        weight = FITTED.prior if len(self._strange) else 0.0
        drawn = ((FITTED.gap_spread * self._gap) ** 2 + self._strange.var()) / 2 if weight else 0.0
        self.spread = math.sqrt((self.n * self._residual.var() + weight * drawn) / (self.n + weight)) or 1.0
        (weight, power), confirmed = FITTED.worth, len(self._measured.confirmed)
        photos = float(some.left[: self.n - confirmed].mean()) + 1 if self.n > confirmed else float(shots.mean())
        self.worth = weight * photos**power * self.way / (self.way + 1) + confirmed

    def at(self, share: float) -> float:
        if self.source == "one photo":
            return self._single(share)
        z, (linear, square) = NormalDist().inv_cdf(1 - share), FITTED.tail
        factor = z * (linear + square * z) * (1 + FITTED.few_classes / self.way)
        weight = self.n * share / (self.n * share + FITTED.beyond)
        quantile = float(np.quantile(self._residual, 1 - share, method="median_unbiased"))
        return (1 - weight) * (float(self._residual.mean()) + factor * self.spread) + weight * quantile

    def _single(self, share: float) -> float:
        """One photo per class: from how the classes look to each other, in gaps."""
        if not self._gap:  # photos are as unknown to their own class as to others
            return float(self._strange.max())
        at = [float(np.interp(math.log(share), np.log(FITTED.shares), column)) for column in np.array(FITTED.single).T]
        numbers = (1.0, float(self._strange.std()) / self._gap, math.log(self.way), self._measured.alike)
        return self._measured.own + self._gap * float(np.dot(at, numbers))
