"""Metrics, as plain functions of (score, known), and the row of numbers that a task gets in every table.

Unknown is the positive class; larger score = more unknown.  A new metric is a function of ``Answers`` and one line in
``METRICS``.  It must reduce the last axis only, so that the same lines serve one task and a block of hundreds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from glocal.common.errors import DataError
from glocal.recognizer.features import UNKNOWN
from glocal.research.metrics import openset
from glocal.research.metrics.arrays import ArrayLike, BoolArray, FloatArray, IntArray, as_float, as_label
from glocal.research.metrics.openset import (
    Answers,
    ScoreHistogram,
    aupr,
    auroc,
    f1_at,
    f1_at_true_rate,
    fpr95,
    oscr,
    score_histogram,
)
from glocal.research.metrics.summary import (
    Interval,
    PairedDifference,
    Spread,
    mean_ci,
    mean_ranks,
    paired_difference,
    sign_test,
    significant,
    spread,
)

__all__ = [
    "METRICS",
    "Answers",
    "Interval",
    "Metric",
    "PairedDifference",
    "ScoreHistogram",
    "Spread",
    "accuracy",
    "aupr",
    "auroc",
    "block_metrics",
    "f1_at",
    "f1_at_true_rate",
    "fpr95",
    "mean_ci",
    "mean_ranks",
    "oscr",
    "paired_difference",
    "score_histogram",
    "sign_test",
    "significant",
    "spread",
    "task_metrics",
]


@dataclass(frozen=True)
class Metric:
    """A column of every table: how it is computed, called and read."""

    title: str  # the head of its column
    description: str
    higher_is_better: bool
    compute: Callable[[Answers], FloatArray]  # (..., Q) -> (...)
    needs_unknown: bool = True


def right_name(logits: FloatArray, label: IntArray) -> BoolArray:
    """(..., Q): the largest logit is the label; never true of an unknown query."""
    return np.asarray(logits.argmax(axis=-1) == label)


def share_correct(answers: Answers) -> FloatArray:
    return np.asarray(answers.correct.sum(axis=-1) / answers.n_known)


METRICS: dict[str, Metric] = {
    "acc": Metric("ACC", "known queries given the right name", True, share_correct, needs_unknown=False),
    "auroc": Metric("AUROC", "probability that an unknown query outranks a known one", True, openset.rank_auroc),
    "aupr": Metric("AUPR", "average precision of finding the unknown queries", True, openset.rank_aupr),
    "fpr95": Metric("FPR95", "known queries refused when 95 % of the unknown are found", False, openset.rank_fpr95),
    "f1": Metric("F1*", "F1 of unknown at the true rate: the cut knows how many there are", True, openset.rank_f1),
    "oscr": Metric("OSCR", "area under correct-classification against false-positive rate", True, openset.rank_oscr),
}
"""Every metric by its name; a table has them in this order."""


def accuracy(logits: ArrayLike, label: ArrayLike) -> float:
    """Share of the known queries whose largest logit is their class.  logits (Q, N), label (Q,) 0..N-1 or UNKNOWN.

    Unknown queries do not count, whatever their logits; among equal logits the first class is the answer.
    """
    values = as_float(logits, "logits", ndim=2)
    truth = as_label(label, values)
    known = truth != UNKNOWN
    if not known.any():
        raise DataError(f"accuracy needs at least one known query, got {len(truth)} unknown ones")
    return float(right_name(values, truth)[known].mean())


def task_metrics(logits: ArrayLike, open_score: ArrayLike, label: ArrayLike) -> dict[str, float]:
    """Every metric of ``METRICS`` that the task defines: without unknown queries only ACC, without known ones none.

    logits (Q, N), open_score (Q,), label (Q,) 0..N-1 or UNKNOWN.
    """
    return {name: float(value) for name, value in _measure(_answers(logits, open_score, label, ndim=1)).items()}


def block_metrics(logits: ArrayLike, open_score: ArrayLike, label: ArrayLike) -> dict[str, FloatArray]:
    """``task_metrics`` of T tasks of the same size at once, each value (T,).

    logits (T, Q, N), open_score (T, Q), label (T, Q).
    """
    return _measure(_answers(logits, open_score, label, ndim=2))


def _answers(logits: ArrayLike, open_score: ArrayLike, label: ArrayLike, *, ndim: int) -> Answers:
    score = as_float(open_score, "open_score", ndim=ndim)
    values = as_float(logits, "logits", ndim=ndim + 1)
    truth = as_label(label, values)
    if truth.shape != score.shape:
        raise DataError(f"open_score must have one entry per row of logits, shape {truth.shape}, got {score.shape}")
    return Answers(score, truth != UNKNOWN, right_name(values, truth))


def _measure(answers: Answers) -> dict[str, FloatArray]:
    values = {}
    for name, metric in METRICS.items():
        defined = np.asarray(answers.n_known > 0)
        if metric.needs_unknown:
            defined &= answers.n_unknown > 0
        if defined.all():
            values[name] = metric.compute(answers)
        elif defined.any():
            raise DataError(
                f"{name} is defined for {defined.sum()} of {defined.size} tasks only, the others lack known or unknown "
                f"queries; measure them apart or draw every task with both"
            )
    return values
