"""Shares that add up to 1."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def with_unknown(logits: Array, odds: Array) -> Array:
    """Softmax of the logits (Q, N), and P(unknown) of the log odds (Q,) as one more column that takes its share."""
    unknown = np.exp(-np.logaddexp(0, -odds))[:, None]  # a sigmoid that takes infinite odds
    weight = np.exp(logits - logits.max(axis=-1, keepdims=True))
    known = weight / weight.sum(axis=-1, keepdims=True)
    return np.concatenate([known * (1 - unknown), unknown], axis=-1)


def below(x: float) -> float:
    """Share of a standard normal distribution below x."""
    return 0.5 * math.erfc(-x / math.sqrt(2))
