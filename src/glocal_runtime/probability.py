"""Shares: of known photos above a standardised score, by tables of quantiles, and those that a picture's classes get.

There is a table for each weight of the left-out scores.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Shares of known photos above each quantile, finer where thresholds lie.
LEVELS = (
    0.995, 0.975, 0.95, 0.9, 0.8, 0.65, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.075, 0.05, 0.035, 0.02, 0.01, 0.005,
)  # fmt: skip
MINUS_LOG = -np.log(LEVELS)  # rising


def table_rows(weights: tuple[float, ...], quantiles: tuple[tuple[float, ...], ...], weight: Array) -> Array:
    """The table at these weights (N,), between its knots: -> (N, levels)."""
    table, knots = np.asarray(quantiles), np.asarray(weights)
    if len(knots) == 1:
        return np.repeat(table, len(weight), axis=0)
    place = np.interp(weight, knots, np.arange(len(knots)))
    lower = np.minimum(place.astype(int), len(knots) - 2)
    part = (place - lower)[:, None]
    return np.asarray((1 - part) * table[lower] + part * table[lower + 1])


def above(x: Array, table: Array) -> Array:
    """Share of known photos above x (..., N), column n by row n of ``table`` (N, levels).

    Beyond the last level the share falls exponentially, as between the last three; below the first it goes to 1.
    """
    out = np.empty(x.shape)
    for n, row in enumerate(table):
        some = x[..., n]
        rate = (MINUS_LOG[-1] - MINUS_LOG[-3]) / max(row[-1] - row[-3], 1e-9)
        inside = np.interp(some, row, MINUS_LOG) + (some - row[-1]).clip(0) * rate
        below = 1 - (1 - LEVELS[0]) * np.exp((some - row[0]).clip(max=0))
        out[..., n] = np.where(some < row[0], below, np.exp(-inside))
    return out


def quantile(share: float, table: Array) -> Array:
    """(N,) what the share of known photos of each class lies above: the inverse of ``above``."""
    wanted = -np.log(share)
    inside = np.array([np.interp(wanted, MINUS_LOG, row) for row in table])
    rate = (table[:, -1] - table[:, -3]) / (MINUS_LOG[-1] - MINUS_LOG[-3])
    return np.asarray(inside + max(0.0, wanted - MINUS_LOG[-1]) * rate)


def with_unknown(logits: Array, odds: Array) -> Array:
    """Softmax of the logits (Q, N), and P(unknown) of the log odds (Q,) as one more column that takes its share."""
    unknown = np.exp(-np.logaddexp(0, -odds))[:, None]  # a sigmoid that takes infinite odds
    weight = np.exp(logits - logits.max(axis=-1, keepdims=True))
    known = weight / weight.sum(axis=-1, keepdims=True)
    return np.concatenate([known * (1 - unknown), unknown], axis=-1)


def below(x: float) -> float:
    """Share of a standard normal distribution below x."""
    return 0.5 * math.erfc(-x / math.sqrt(2))
