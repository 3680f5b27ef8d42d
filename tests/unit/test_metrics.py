"""Metrics on numbers small enough to check by hand, the bad input they refuse, and means over tasks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from glocal.research import metrics
from glocal.research.metrics import Interval, mean_ci, mean_ranks, paired_difference, sign_test
from glocal.research.types import UNKNOWN
from reference import metrics as slow
from refusal import refused

# From most to least unknown: U K U (U K) K, the pair in brackets tied.
SCORE = np.array([9.0, 7.0, 5.0, 2.0, 2.0, -4.0])
KNOWN = np.array([False, True, False, False, True, True])
OPEN_SET = [metrics.auroc, metrics.aupr, metrics.fpr95, metrics.f1_at_true_rate]


def test_values_by_hand():
    assert metrics.auroc(SCORE, KNOWN) == pytest.approx((3 + 2 + 1.5) / 9)
    assert metrics.aupr(SCORE, KNOWN) == pytest.approx((1 + 2 / 3 + 3 / 5) / 3)
    assert metrics.fpr95(SCORE, KNOWN) == pytest.approx(2 / 3)
    assert metrics.f1_at_true_rate(SCORE, KNOWN) == pytest.approx(2 * 2 / (3 + 3))
    # Only the known query with score 2 is misnamed: its 2.5 won pairs are lost.
    assert metrics.oscr(SCORE, KNOWN, np.array([0, 1, 0, 1, 0, 1], dtype=bool)) == pytest.approx((3 + 1) / 9)


def test_cuts_include_their_ties_and_reach_exactly_95_percent():
    score, known = np.array([3.0, 1.0, 1.0, 1.0, 0.0]), np.array([False, False, True, True, True])
    assert metrics.f1_at_true_rate(score, known) == pytest.approx(2 * 2 / (4 + 2))
    assert metrics.f1_at(score, known, 1.0) == pytest.approx(2 * 1 / (1 + 2))
    assert metrics.f1_at(score, known, np.nextafter(1.0, 0.0)) == metrics.f1_at_true_rate(score, known)
    assert metrics.f1_at(score, known, 3.0) == 0.0  # nobody is called unknown
    score = np.r_[np.arange(40.0, 20.0, -1), [21.5, 20.5, 20.0]]  # 20 unknown, then known: one above the last unknown
    known = np.r_[np.zeros(20, dtype=bool), np.ones(3, dtype=bool)]
    assert metrics.fpr95(score, known) == 0.0  # 19 of 20 are found before the first known query
    assert metrics.fpr95(score[1:], known[1:]) == pytest.approx(1 / 3)  # 18 of 19 are not enough


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_tensors_of_every_precision_with_gradients_and_strides(dtype: torch.dtype):
    score = torch.stack([torch.tensor(SCORE).to(dtype), torch.zeros(6, dtype=dtype)], dim=1)[:, 0]
    if dtype.is_floating_point:
        score.requires_grad_()
    for measure in OPEN_SET:
        assert measure(score, torch.tensor(KNOWN)) == measure(SCORE, KNOWN) == measure(SCORE.tolist(), KNOWN.tolist())


@pytest.mark.parametrize("measure", OPEN_SET)
@pytest.mark.parametrize(
    ("score", "known", "part"),
    [
        (np.arange(3.0), np.ones(3, dtype=bool), "3 known and 0 unknown"),
        (np.arange(3.0), np.zeros(3, dtype=bool), "0 known and 3 unknown"),
        (np.array([0.0, np.nan, 1.0]), KNOWN[:3], "NaN, got 1 of 3"),
        (SCORE, np.where(KNOWN, 0, UNKNOWN), "boolean mask, got int64"),
        (SCORE, KNOWN[:5], "(6,), got (5,)"),
        (SCORE[:, None], KNOWN[:, None], "1 dimension"),
        ([], np.array([], dtype=bool), "at least one entry"),
    ],
)
def test_bad_input_is_refused(measure, score, known, part):
    with refused("data", part):
        measure(score, known)
    with refused("data", "NaN"):
        metrics.f1_at(SCORE, KNOWN, float("nan"))


def test_accuracy_counts_known_queries_only():
    logits = torch.tensor([[2.0, 1.0], [0.0, 3.0], [5.0, 1.0], [9.0, 0.0], [1.0, 1.0]])
    label = torch.tensor([0, 1, 1, UNKNOWN, 0])
    assert metrics.accuracy(logits, label) == 3 / 4  # the tie goes to the first class
    assert metrics.accuracy(logits.numpy(), label.numpy()) == 3 / 4


@pytest.mark.parametrize(
    ("label", "part"), [([UNKNOWN, UNKNOWN], "2 unknown"), ([0, 2], "0..2"), ([0], "(2,), got (1,)")]
)
def test_accuracy_refuses(label: list[float], part: str):
    with refused("data", part):
        metrics.accuracy(np.eye(2), np.array(label))


def draw(rng: np.random.Generator, *, tasks: int, known: int, unknown: int, way: int = 3):
    label = np.concatenate([rng.integers(way, size=(tasks, known)), np.full((tasks, unknown), UNKNOWN)], axis=1)
    label = rng.permuted(label, axis=1)
    logits = rng.normal(size=(*label.shape, way)) + (label[..., None] == np.arange(way))
    return logits, rng.integers(-4, 5, size=label.shape).astype(float), label  # few distinct scores: many ties


def test_one_task_is_the_single_metrics_and_a_block_is_its_tasks():
    rng = np.random.default_rng(0)
    parts = [draw(rng, tasks=5, known=k, unknown=10 - k) for k in (1, 5, 6, 9)]  # shares of unknown may differ
    block = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    rows = metrics.block_metrics(*block)
    assert list(rows) == list(metrics.METRICS) == ["acc", "auroc", "aupr", "fpr95", "f1", "oscr"]
    for i, (logits, score, label) in enumerate(zip(*block, strict=True)):
        known, correct = label != UNKNOWN, logits.argmax(axis=1) == label
        row = metrics.task_metrics(torch.tensor(logits), torch.tensor(score), torch.tensor(label))
        assert row == {
            "acc": metrics.accuracy(logits, label),
            "auroc": metrics.auroc(score, known),
            "aupr": metrics.aupr(score, known),
            "fpr95": metrics.fpr95(score, known),
            "f1": metrics.f1_at_true_rate(score, known),
            "oscr": metrics.oscr(score, known, correct),
        }
        assert row == {name: rows[name][i] for name in rows}
        assert row["oscr"] == pytest.approx(slow.oscr(score, known, correct), abs=1e-12)


def test_a_task_gets_the_metrics_it_defines():
    logits, score, label = (x[0] for x in draw(np.random.default_rng(2), tasks=1, known=6, unknown=0))
    assert metrics.task_metrics(logits, score, label) == {"acc": metrics.accuracy(logits, label)}
    assert metrics.task_metrics(logits, score, np.full(6, UNKNOWN)) == {}
    mixed = np.stack([label, np.where(np.arange(6) < 2, UNKNOWN, label)])
    with refused("data", "auroc is defined for 1 of 2 tasks"):
        metrics.block_metrics(np.stack([logits] * 2), np.stack([score] * 2), mixed)
    with refused("data", "open_score", "(6,), got (5,)"):
        metrics.task_metrics(logits, score[:5], label)


def test_histogram_by_hand():
    tasks = [
        (np.array([-1.0, 0.0, 1.0, 3.0]), np.array([True, True, False, False])),  # -> 0, .25, .5, 1
        (np.array([2.0, 4.0]), np.array([True, False])),  # positive: not moved -> .5, 1
    ]
    pooled = metrics.score_histogram(tasks)
    assert {int(i): int(pooled.known[i]) for i in pooled.known.nonzero()[0]} == {0: 1, 25: 1, 50: 1}
    assert {int(i): int(pooled.unknown[i]) for i in pooled.unknown.nonzero()[0]} == {50: 1, 99: 2}
    assert metrics.score_histogram(tasks).iou == pytest.approx(1 / 5)
    assert pooled.edges.shape == (101,)


@pytest.mark.parametrize(
    ("score", "known", "words"),
    [(np.arange(3.0), np.ones(3, dtype=bool), "3 known and 0 unknown"), ([0.0, np.inf], [True, False], "infinity")],
)
def test_a_histogram_of_one_side_or_of_infinity_is_refused(score, known, words: str):
    with refused("data", words):
        metrics.score_histogram([(np.array(score), np.array(known))])


def test_mean_ci_uses_the_population_std():
    interval = mean_ci([0.2, 0.4, 0.9])
    std = math.sqrt((0.3**2 + 0.1**2 + 0.4**2) / 3)
    assert interval.mean == pytest.approx(0.5)
    assert interval.half == pytest.approx(1.96 * std / math.sqrt(3))
    assert interval.n == 3
    assert mean_ci(torch.tensor([0.2, 0.4, 0.9], dtype=torch.float64)) == interval
    assert mean_ci([0.7]) == Interval(0.7, 0.0, 1)


def test_paired_difference_sees_what_unpaired_intervals_hide():
    rng = np.random.default_rng(0)
    hardness = rng.normal(0.7, 0.1, size=600)
    b = hardness + rng.normal(0, 0.01, size=600)
    a = hardness + rng.normal(0.003, 0.01, size=600)
    assert a.mean() - b.mean() < mean_ci(a).half + mean_ci(b).half  # the plain intervals overlap
    verdict = paired_difference(a, b)
    assert verdict.mean == pytest.approx(a.mean() - b.mean())
    assert 0 < verdict.low < verdict.mean < verdict.high
    assert (verdict.wins, verdict.losses, verdict.n) == (int((a > b).sum()), int((a < b).sum()), 600)
    # For 600 tasks the percentile bootstrap and the normal interval say nearly the same.
    normal = mean_ci(a - b)
    assert verdict.low == pytest.approx(normal.mean - normal.half, abs=0.05 * normal.half)
    assert verdict.high == pytest.approx(normal.mean + normal.half, abs=0.05 * normal.half)


def test_paired_difference_is_a_function_of_its_seed_also_in_chunks():
    a, b = np.random.default_rng(1).random((2, 30))
    assert paired_difference(a, b, seed=3) == paired_difference(a, b, seed=3)
    assert paired_difference(a, b, seed=3).low != paired_difference(a, b, seed=4).low
    assert paired_difference(a, b, resamples=50).low != paired_difference(a, b, resamples=51).low
    once = paired_difference(a, b, resamples=1)
    assert once.low == once.high, "one draw has no spread"
    same = paired_difference(a, a)
    assert (same.mean, same.low, same.high, same.p_value, same.wins, same.losses) == (0, 0, 0, 1, 0, 0)
    with refused("data", "2 and 3"):
        paired_difference([0.1, 0.2], [0.1, 0.2, 0.3])
    value = np.r_[np.zeros(150_000), np.ones(150_000)]  # 3 resamples fit into a chunk
    verdict = paired_difference(value, np.zeros_like(value), resamples=40)
    assert verdict.low < 0.5 < verdict.high
    assert verdict.high - verdict.low == pytest.approx(3.92 * 0.5 / math.sqrt(300_000), rel=0.5)


@pytest.mark.parametrize(("wins", "losses"), [(1, 0), (7, 0), (12, 5), (290, 310), (40, 40)])
def test_sign_test_against_scipy_by_hand_and_far_out(wins: int, losses: int):
    found = sign_test(wins, losses)
    assert found == sign_test(losses, wins) == pytest.approx(stats.binomtest(wins, wins + losses).pvalue, rel=1e-9)
    assert sign_test(0, 0) == 1.0
    assert sign_test(8, 2) == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert sign_test(5000, 0) == 0.0  # below the smallest float, not an error


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_mean_ranks_against_scipy(higher_is_better: bool):
    values = np.random.default_rng(2).integers(0, 4, (5, 40)) / 4  # few values: many ties
    ranks = mean_ranks(values, higher_is_better=higher_is_better)
    np.testing.assert_allclose(ranks, stats.rankdata(-values if higher_is_better else values, axis=0).mean(axis=1))
    assert ranks.sum() == pytest.approx(5 * 6 / 2)
    assert mean_ranks([[0.9, 0.5], [0.7, 0.5], [0.1, 0.8]]).tolist() == [1.75, 2.25, 2.0]
    assert mean_ranks([[0.3, 0.1]]).tolist() == [1.0]
