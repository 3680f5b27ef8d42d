"""From one number per task to one line of a table, from two methods to one verdict, from many to their ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from glocal.common.errors import DataError
from glocal.research.metrics.arrays import ArrayLike, FloatArray, as_float


@dataclass(frozen=True)
class Interval:
    """Mean of n tasks and half the width of its 95 % confidence interval: mean ± half."""

    mean: float
    half: float
    n: int


def mean_ci(values: ArrayLike) -> Interval:
    """Mean over tasks ± 1.96 · std / √n, with the population std as the papers use it; one task has half = 0."""
    value = _finite(values, "values")
    return Interval(float(value.mean()), float(1.96 * value.std() / math.sqrt(len(value))), len(value))


@dataclass(frozen=True)
class PairedDifference:
    """How much a exceeds b on the same tasks.  The difference is significant when 0 lies outside low..high."""

    mean: float
    low: float  # 95 % percentile bootstrap over tasks
    high: float
    p_value: float  # two-sided sign test, exact
    wins: int  # tasks with a > b
    losses: int
    n: int


def paired_difference(a: ArrayLike, b: ArrayLike, *, seed: int = 0, resamples: int = 10_000) -> PairedDifference:
    """Compare one metric of two methods, a (T,) and b (T,), entry i of both from task i.

    Pairing removes what the tasks share: easy and hard tasks no longer widen the interval.
    """
    first, second = _finite(a, "a"), _finite(b, "b")
    if len(first) != len(second):
        raise DataError(
            f"a and b must come from the same tasks, got {len(first)} and {len(second)}; evaluate both on one list"
        )
    difference = first - second
    low, high = np.quantile(_bootstrap_means(difference, seed=seed, resamples=resamples), [0.025, 0.975])
    wins, losses = int((difference > 0).sum()), int((difference < 0).sum())
    return PairedDifference(
        mean=float(difference.mean()),
        low=float(low),
        high=float(high),
        p_value=sign_test(wins, losses),
        wins=wins,
        losses=losses,
        n=len(difference),
    )


# Of Student's distribution, 97.5 %, by the number of values; 11 and more are taken for 11.
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262, 11: 2.228}


@dataclass(frozen=True)
class Spread:
    """Of one number over trainings from several seeds; its mean is significant when 0 lies outside low..high."""

    mean: float
    std: float  # of the sample, by n - 1
    low: float  # 95 % interval of the mean, by Student's distribution
    high: float
    n: int


def spread(values: ArrayLike) -> Spread:
    """One value per seed (S,), at least two of them."""
    value = _finite(values, "values")
    n = len(value)
    if n < 2:
        raise DataError(f"a spread over seeds needs at least two of them, got {n}")
    std = float(value.std(ddof=1))
    half = STUDENT[min(n, max(STUDENT))] * std / math.sqrt(n)
    return Spread(float(value.mean()), std, float(value.mean()) - half, float(value.mean()) + half, n)


def significant(over_tasks: PairedDifference, over_seeds: Spread) -> bool:
    """Whether both intervals lie on the same side of 0."""
    return (over_tasks.low > 0 and over_seeds.low > 0) or (over_tasks.high < 0 and over_seeds.high < 0)


def sign_test(wins: int, losses: int) -> float:
    """P(a split at least this uneven) if either side were equally likely to win a task; draws are left out."""
    n, term, tail = wins + losses, 1, 0
    for i in range(min(wins, losses) + 1):  # term = n over i, in whole numbers: exact for any n
        tail += term
        term = term * (n - i) // (i + 1)
    return min(1.0, 2 * tail / 2**n)


def mean_ranks(values: ArrayLike, *, higher_is_better: bool = True) -> FloatArray:
    """Mean over T tasks of each method's place among the M: (M, T) -> (M,).  1 is best; equals share their places."""
    value = as_float(values, "values", ndim=2)
    if not higher_is_better:
        value = np.negative(value)
    better = (value[None] > value[:, None]).sum(axis=1)  # (M, T): how many of the others beat it
    equal = (value[None] == value[:, None]).sum(axis=1)  # itself included
    return (1 + better + (equal - 1) / 2).mean(axis=1)


def _bootstrap_means(value: FloatArray, *, seed: int, resamples: int) -> FloatArray:
    """Means of ``resamples`` draws of T tasks with replacement, some rows at a time to bound the memory."""
    rng, n = np.random.default_rng(seed), len(value)
    rows = max(1, 2**20 // n)
    chunks = [min(rows, resamples - start) for start in range(0, resamples, rows)]
    return np.concatenate([value[rng.integers(n, size=(chunk, n))].mean(axis=1) for chunk in chunks])


def _finite(values: ArrayLike, name: str) -> FloatArray:
    array = as_float(values, name, ndim=1)
    if np.isinf(array).any():
        raise DataError(f"{name} must be finite, got {int(np.isinf(array).sum())} infinite entries of {len(array)}")
    return array
