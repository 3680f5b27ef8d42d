"""How often a known query gets the right name."""

from __future__ import annotations

import numpy as np

from glocal.metrics.arrays import ArrayLike, BoolArray, FloatArray, IntArray, as_float, as_label, known_mask
from glocal.metrics.openset import Answers
from glocal_runtime.errors import DataError


def accuracy(logits: ArrayLike, label: ArrayLike) -> float:
    """Share of the known queries whose largest logit is their class.  logits (Q, N), label (Q,) 0..N-1 or UNKNOWN.

    Unknown queries do not count, whatever their logits; among equal logits the first class is the answer.
    """
    values = as_float(logits, "logits", ndim=2)
    truth = as_label(label, values)
    known = known_mask(truth)
    if not known.any():
        raise DataError(f"accuracy needs at least one known query, got {len(truth)} unknown ones")
    return float(right_name(values, truth)[known].mean())


def right_name(logits: FloatArray, label: IntArray) -> BoolArray:
    """(..., Q): the largest logit is the label; never true of an unknown query."""
    return np.asarray(logits.argmax(axis=-1) == label)


def share_correct(answers: Answers) -> FloatArray:
    return np.asarray(answers.correct.sum(axis=-1) / answers.n_known)
