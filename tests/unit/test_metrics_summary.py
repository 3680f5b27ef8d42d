"""Means over tasks, paired differences, ranks; scipy is the oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from glocal.metrics import Interval, mean_ci, mean_ranks, paired_difference, sign_test
from refusal import refused


def test_mean_ci_uses_the_population_std():
    interval = mean_ci([0.2, 0.4, 0.9])
    std = math.sqrt((0.3**2 + 0.1**2 + 0.4**2) / 3)
    assert interval.mean == pytest.approx(0.5)
    assert interval.half == pytest.approx(1.96 * std / math.sqrt(3))
    assert (interval.low, interval.high, interval.n) == (0.5 - interval.half, 0.5 + interval.half, 3)
    assert mean_ci(torch.tensor([0.2, 0.4, 0.9], dtype=torch.float64)) == interval
    assert mean_ci([0.7]) == Interval(0.7, 0.0, 1)


@pytest.mark.parametrize(
    ("values", "part"), [([], "at least one"), ([0.1, math.nan], "NaN, got 1 of 2"), ([0.1, math.inf], "1 infinite")]
)
def test_mean_ci_refuses(values: list[float], part: str):
    with refused("data", part):
        mean_ci(values)


def test_paired_difference_sees_what_unpaired_intervals_hide():
    rng = np.random.default_rng(0)
    hardness = rng.normal(0.7, 0.1, size=600)
    b = hardness + rng.normal(0, 0.01, size=600)
    a = hardness + rng.normal(0.003, 0.01, size=600)
    assert mean_ci(a).low < mean_ci(b).high  # the plain intervals overlap
    verdict = paired_difference(a, b)
    assert verdict.mean == pytest.approx(a.mean() - b.mean())
    assert 0 < verdict.low < verdict.mean < verdict.high
    assert (verdict.wins, verdict.losses, verdict.n) == (int((a > b).sum()), int((a < b).sum()), 600)
    # For 600 tasks the percentile bootstrap and the normal interval say nearly the same.
    normal = mean_ci(a - b)
    assert verdict.low == pytest.approx(normal.low, abs=0.05 * normal.half)
    assert verdict.high == pytest.approx(normal.high, abs=0.05 * normal.half)


def test_paired_difference_is_a_function_of_its_seed():
    a, b = np.random.default_rng(1).random((2, 30))
    assert paired_difference(a, b, seed=3) == paired_difference(a, b, seed=3)
    assert paired_difference(a, b, seed=3).low != paired_difference(a, b, seed=4).low
    assert paired_difference(a, b, resamples=50).low != paired_difference(a, b, resamples=51).low


def test_bootstrap_draws_every_resample_when_it_works_in_chunks():
    value = np.r_[np.zeros(150_000), np.ones(150_000)]  # 3 resamples fit into a chunk
    verdict = paired_difference(value, np.zeros_like(value), resamples=40)
    assert verdict.low < 0.5 < verdict.high
    assert verdict.high - verdict.low == pytest.approx(3.92 * 0.5 / math.sqrt(300_000), rel=0.5)


def test_equal_methods_are_not_told_apart():
    same = paired_difference([0.5, 0.6, 0.7], [0.5, 0.6, 0.7])
    assert (same.mean, same.low, same.high, same.p_value, same.wins, same.losses) == (0, 0, 0, 1, 0, 0)


def test_paired_difference_refuses():
    with refused("data", "2 and 3"):
        paired_difference([0.1, 0.2], [0.1, 0.2, 0.3])
    with refused("recipe", "resamples"):
        paired_difference([0.1], [0.2], resamples=0)


@pytest.mark.parametrize(("wins", "losses"), [(1, 0), (7, 0), (12, 5), (290, 310), (40, 40)])
def test_sign_test_against_scipy(wins: int, losses: int):
    found = sign_test(wins, losses)
    assert found == sign_test(losses, wins) == pytest.approx(stats.binomtest(wins, wins + losses).pvalue, rel=1e-9)


def test_sign_test_by_hand_and_far_out():
    assert sign_test(0, 0) == 1.0
    assert sign_test(8, 2) == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert sign_test(5000, 0) == 0.0  # below the smallest float, not an error


def test_draws_are_left_out_of_the_sign_test():
    a = np.r_[np.full(9, 0.6), np.full(3, 0.4), np.full(88, 0.5)]
    verdict = paired_difference(a, np.full(100, 0.5), resamples=10)
    assert (verdict.wins, verdict.losses, verdict.n) == (9, 3, 100)
    assert verdict.p_value == pytest.approx(stats.binomtest(9, 12).pvalue)


def test_bootstrap_interval_against_scipy():
    rng = np.random.default_rng(5)
    a, b = rng.beta(8, 2, 300), rng.beta(7, 2, 300)
    verdict = paired_difference(a, b)
    drawn = np.random.default_rng(1)
    theirs = stats.bootstrap((a - b,), np.mean, n_resamples=10_000, method="percentile", random_state=drawn)
    width = verdict.high - verdict.low
    assert verdict.low == pytest.approx(theirs.confidence_interval.low, abs=0.03 * width)
    assert verdict.high == pytest.approx(theirs.confidence_interval.high, abs=0.03 * width)


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_mean_ranks_against_scipy(higher_is_better: bool):
    values = np.random.default_rng(2).integers(0, 4, (5, 40)) / 4  # few values: many ties
    ranks = mean_ranks(values, higher_is_better=higher_is_better)
    np.testing.assert_allclose(ranks, stats.rankdata(-values if higher_is_better else values, axis=0).mean(axis=1))
    assert ranks.sum() == pytest.approx(5 * 6 / 2)


def test_mean_ranks_by_hand():
    assert mean_ranks([[0.9, 0.5], [0.7, 0.5], [0.1, 0.8]]).tolist() == [1.75, 2.25, 2.0]
    assert mean_ranks([[0.3, 0.1]]).tolist() == [1.0]
