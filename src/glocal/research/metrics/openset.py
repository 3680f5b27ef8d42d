"""How well a score tells unknown queries from known ones.  Unknown is the positive class; larger score = more unknown.

Everything that depends on the order of the queries is read off one object, ``Answers``, sorted once.  It holds one
task (Q,) or a block of T tasks of the same size (T, Q): "..." below is nothing or T.  Scores are unbounded and only
their order counts, so ties, 1e300, denormals and infinities need no care; NaN is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from glocal.common.errors import DataError
from glocal.research.metrics.arrays import ArrayLike, BoolArray, FloatArray, IntArray, as_float, as_mask


@dataclass(frozen=True)
class Answers:
    """What a method said about the queries of a task, and what was true.

    The ``*_above`` counts are the ROC: entry i belongs to the threshold at the i-th largest score and counts the
    queries at or above it.  Equal scores share one threshold, so its point is repeated, never split.
    """

    score: FloatArray  # (..., Q)
    known: BoolArray  # (..., Q)
    correct: BoolArray  # (..., Q)  known, and given the right name

    @cached_property
    def n_known(self) -> IntArray:  # (...)
        return self.known.sum(axis=-1)

    @cached_property
    def n_unknown(self) -> IntArray:  # (...)
        return self.known.shape[-1] - self.n_known

    @cached_property
    def order(self) -> IntArray:
        """(..., Q): positions of the queries from most to least unknown."""
        return np.argsort(self.score, axis=-1)[..., ::-1]

    @cached_property
    def above(self) -> IntArray:
        """(..., Q): how many queries score at least the i-th largest score, itself and its equals included."""
        ranked = np.take_along_axis(self.score, self.order, axis=-1)
        count = np.broadcast_to(np.arange(1, ranked.shape[-1] + 1), ranked.shape)
        # The count at the last of a run of equal scores holds for the whole run: look right for the next such end.
        end = np.where(ranked[..., :-1] != ranked[..., 1:], count[..., :-1], ranked.shape[-1])
        run_end = np.minimum.accumulate(end[..., ::-1], axis=-1)[..., ::-1]
        return np.concatenate([run_end, count[..., -1:]], axis=-1)

    def above_among(self, group: BoolArray) -> IntArray:
        """(..., Q): ``above``, counting only the queries of ``group`` (..., Q)."""
        running = np.take_along_axis(group, self.order, axis=-1).cumsum(axis=-1)
        return np.take_along_axis(running, self.above - 1, axis=-1)

    @cached_property
    def unknown_above(self) -> IntArray:
        return self.above_among(~self.known)

    @cached_property
    def known_above(self) -> IntArray:
        return self.above - self.unknown_above


def rank_auroc(answers: Answers) -> FloatArray:
    return _pairs_won(answers, answers.known_above)


def rank_oscr(answers: Answers) -> FloatArray:
    return _pairs_won(answers, answers.above_among(answers.correct))


def _pairs_won(answers: Answers, known_above: IntArray) -> FloatArray:
    """Area under the staircase, in whole numbers: pairs (known, unknown) in the right order, ties one half."""
    unknown_above = answers.unknown_above
    twice = _steps(known_above) * (2 * unknown_above - _steps(unknown_above))
    return twice.sum(axis=-1) / (2 * answers.n_known * answers.n_unknown)


def rank_aupr(answers: Answers) -> FloatArray:
    precision = answers.unknown_above / answers.above
    return (_steps(answers.unknown_above) * precision).sum(axis=-1) / answers.n_unknown


def rank_fpr95(answers: Answers) -> FloatArray:
    enough = answers.unknown_above / answers.n_unknown[..., None] >= 0.95
    return _entry(answers.known_above, enough.argmax(axis=-1)) / answers.n_known


def rank_f1(answers: Answers) -> FloatArray:
    cut = answers.n_unknown - 1
    return 2 * _entry(answers.unknown_above, cut) / (_entry(answers.above, cut) + answers.n_unknown)


def _steps(count: IntArray) -> IntArray:
    """Differences along the last axis, starting from 0."""
    return np.diff(count, axis=-1, prepend=0)


def _entry(x: IntArray, index: IntArray) -> IntArray:
    """x (..., Q), index (...) -> (...)."""
    return np.take_along_axis(x, np.asarray(index)[..., None], axis=-1)[..., 0]


def auroc(score: ArrayLike, known: ArrayLike) -> float:
    """P(unknown outranks known), ties counted one half.  score (Q,), known (Q,) bool."""
    return float(rank_auroc(_two_sided(score, known)))


def aupr(score: ArrayLike, known: ArrayLike) -> float:
    """Average precision Σ_i (R_i - R_{i-1}) P_i over the distinct thresholds, without interpolation."""
    return float(rank_aupr(_two_sided(score, known)))


def fpr95(score: ArrayLike, known: ArrayLike) -> float:
    """Share of known queries called unknown at the first point of the full ROC that finds 95 % of the unknown."""
    return float(rank_fpr95(_two_sided(score, known)))


def f1_at_true_rate(score: ArrayLike, known: ArrayLike) -> float:
    """F1 of "unknown" when score >= the n_unknown-th largest score is called unknown, ties included.

    The cut knows the share of unknown queries, which nobody knows in use: ``f1_at`` is the deployable number.
    """
    return float(rank_f1(_two_sided(score, known)))


def f1_at(score: ArrayLike, known: ArrayLike, threshold: float) -> float:
    """F1 of "unknown" when score > threshold is called unknown, as a recognizer does with its calibrated threshold.

    The comparison is strict, so a query exactly at the threshold is known; ``f1_at_true_rate`` takes its cut from the
    scores themselves and therefore includes it.
    """
    if np.isnan(threshold):
        raise DataError("threshold must be a number, got NaN; calibrate it first")
    answers = _two_sided(score, known)
    called = answers.score > threshold
    hits = np.count_nonzero(called & ~answers.known)
    return float(2 * hits / (np.count_nonzero(called) + answers.n_unknown))


def oscr(score: ArrayLike, known: ArrayLike, correct: ArrayLike) -> float:
    """Area under correct-classification rate against false-positive rate (Dhamija et al. 2018), ties one half.

    Both rates are of queries accepted as known: right ones among the known, all among the unknown.  It is the
    share of pairs (known, unknown) in the right order whose known query got the right name: at most ACC and AUROC.
    ``correct`` (Q,) bool; its values for unknown queries are ignored.
    """
    answers = _two_sided(score, known)
    right = as_mask(correct, "correct", answers.score) & answers.known
    return float(_pairs_won(answers, answers.above_among(right)))


def _two_sided(score: ArrayLike, known: ArrayLike) -> Answers:
    values = as_float(score, "score", ndim=1)
    mask = as_mask(known, "known", values)
    answers = Answers(values, mask, correct=mask)
    if answers.n_known == 0 or answers.n_unknown == 0:
        raise DataError(
            f"an open-set metric needs known and unknown queries, got {answers.n_known} known and "
            f"{answers.n_unknown} unknown; draw tasks with at least one query on each side"
        )
    return answers


BINS = 100


@dataclass(frozen=True)
class ScoreHistogram:
    """Scores scaled to [0, 1] within their task, pooled over tasks."""

    edges: FloatArray  # (BINS + 1,)
    known: IntArray  # (BINS,) queries per bin
    unknown: IntArray  # (BINS,)

    @property
    def known_share(self) -> FloatArray:
        """(bins,): the counts of known queries, as shares that add up to 1."""
        return self.known / self.known.sum()

    @property
    def unknown_share(self) -> FloatArray:
        """The same of the unknown ones."""
        return self.unknown / self.unknown.sum()

    @property
    def iou(self) -> float:
        """Σ min / Σ max of the two shares: 0 = apart, 1 = the same.

        Shares, not counts, so that it does not move with the mixture.  On the paper's tasks, half known and half
        unknown, both give the same number.
        """
        known, unknown = self.known_share, self.unknown_share
        return float(np.minimum(known, unknown).sum() / np.maximum(known, unknown).sum())


def score_histogram(tasks: Iterable[tuple[ArrayLike, ArrayLike]]) -> ScoreHistogram:
    """Pool (score (Q,), known (Q,) bool) of every task; tasks may differ in size."""
    edges = np.arange(BINS + 1) / BINS
    pooled = np.zeros((2, BINS), dtype=np.int64)
    for score, known in tasks:
        values = as_float(score, "score", ndim=1)
        mask = as_mask(known, "known", values)
        scaled = _to_unit(values)
        pooled += [np.histogram(scaled[side], edges)[0] for side in (mask, ~mask)]
    n_known, n_unknown = pooled.sum(axis=1)
    if n_known == 0 or n_unknown == 0:
        raise DataError(
            f"a score histogram needs known and unknown queries, got {n_known} known and {n_unknown} unknown over all "
            f"tasks; draw tasks with at least one query on each side"
        )
    return ScoreHistogram(edges, known=pooled[0], unknown=pooled[1])


def _to_unit(score: FloatArray) -> FloatArray:
    """Subtract the minimum if it is negative, then divide by the maximum; if that is 0, every score goes to 0."""
    if not np.isfinite(score).all():
        raise DataError("score must be finite for a histogram, got infinity: it cannot be scaled to [0, 1]")
    if np.abs(score).max() > np.finfo(np.float64).max / 2:
        score = score / 2  # or max - min would overflow
    score = score - min(score.min(), 0.0)
    top = score.max()
    return score / top if top > 0 else score
