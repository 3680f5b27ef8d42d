"""The paper's density figure: where the scores of known and unknown queries lie, and how much they overlap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from glocal.metrics.arrays import ArrayLike, FloatArray, IntArray, as_float, as_mask
from glocal_runtime.errors import DataError

BINS = 100


@dataclass(frozen=True)
class ScoreHistogram:
    """Scores scaled to [0, 1] within their task, pooled over tasks."""

    edges: FloatArray  # (BINS + 1,)
    known: IntArray  # (BINS,) queries per bin
    unknown: IntArray  # (BINS,)

    @property
    def known_share(self) -> FloatArray:
        return self.known / self.known.sum()

    @property
    def unknown_share(self) -> FloatArray:
        return self.unknown / self.unknown.sum()

    @property
    def iou(self) -> float:
        """Σ min / Σ max of the two shares: 0 = apart, 1 = the same.

        Shares, not counts: on the paper's tasks, half known and half unknown, that is the same number, and elsewhere
        it does not move with the mixture.
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
