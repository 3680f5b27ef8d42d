"""Metrics equal scikit-learn (or a slow twin) on random, tied and extreme scores, and obey their symmetries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score, roc_curve

from glocal.research import metrics
from reference import metrics as slow

OPEN_SET = [metrics.auroc, metrics.aupr, metrics.fpr95, metrics.f1_at_true_rate]

few_values = st.integers(-2, 2).map(float)  # almost everything tied
any_finite = st.floats(allow_nan=False, allow_infinity=False)  # 1e308, negative, denormal, -0.0
neighbours = st.integers(0, 3).map(lambda ulps: 1.0 + ulps * 2.0**-52)  # apart in float64 only
ordinary = st.floats(-50, 50)


@st.composite
def small_tasks(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """score (Q,) and known (Q,) with at least one query on each side, in any order and proportion."""
    known = draw(st.permutations([True, False, *draw(st.lists(st.booleans(), max_size=40))]))
    values = draw(st.sampled_from([few_values, any_finite, neighbours, ordinary]))
    score = draw(st.lists(values, min_size=len(known), max_size=len(known)))
    return np.array(score), np.array(known)


@st.composite
def large_tasks(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """The size of a benchmark task, where 95 % is a step of the curve and not its end."""
    n_known, n_unknown, decimals = draw(st.tuples(st.integers(1, 150), st.integers(1, 150), st.integers(0, 4)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    known = rng.permutation(np.r_[np.ones(n_known, dtype=bool), np.zeros(n_unknown, dtype=bool)])
    return np.round(rng.normal(size=known.size) - known, decimals), known


def tasks() -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    return small_tasks() | large_tasks()


def exactly(x: float) -> object:
    return pytest.approx(x, rel=0, abs=1e-12)


@given(tasks(), st.data())
def test_equal_to_scikit_learn(task, data):
    score, known = task
    unknown = ~known
    with np.errstate(over="ignore"):  # scikit-learn subtracts neighbouring scores; 1e308 - -1e308 is infinite
        assert metrics.auroc(score, known) == exactly(roc_auc_score(unknown, score))
        assert metrics.aupr(score, known) == exactly(average_precision_score(unknown, score))
        fpr, tpr, _ = roc_curve(unknown, score, drop_intermediate=False)
    assert metrics.fpr95(score, known) == exactly(fpr[np.argmax(tpr >= 0.95)])
    cut = np.sort(score)[::-1][unknown.sum() - 1]
    assert metrics.f1_at_true_rate(score, known) == exactly(f1_score(unknown, score >= cut))
    threshold = data.draw(st.one_of(st.sampled_from(score.tolist()), ordinary))
    assert metrics.f1_at(score, known, threshold) == exactly(f1_score(unknown, score > threshold))


@given(tasks(), st.data())
def test_oscr_equals_its_twin_and_its_bounds(task, data):
    score, known = task
    correct = np.array(data.draw(st.lists(st.booleans(), min_size=len(score), max_size=len(score))))
    value = metrics.oscr(score, known, correct)
    assert value == exactly(slow.oscr(score, known, correct))
    assert value <= min(correct[known].mean(), metrics.auroc(score, known)) + 1e-12
    assert metrics.oscr(score, known, known) == metrics.auroc(score, known)
    if (correct & known).any():
        kept = ~known | correct
        alone = metrics.auroc(score[kept], known[kept])
        assert value == exactly(alone * correct[known].mean())


@given(tasks(), st.randoms(use_true_random=False))
def test_symmetries(task, random):
    score, known = task
    ranks = np.unique(score, return_inverse=True)[1]  # strictly monotone, ties kept
    shuffled = random.sample(range(len(score)), len(score))
    for measure in OPEN_SET:
        value = measure(score, known)
        for moved in (ranks, np.exp(ranks / 4), -1.0 / (1 + ranks), ranks**3 - 1e6):
            assert measure(moved, known) == value, "only the order of scores counts"
        assert measure(score[shuffled], known[shuffled]) == value, "the order of queries does not"
    for mirrored in (metrics.auroc(-score, known), metrics.auroc(score, ~known)):
        assert mirrored == exactly(1 - metrics.auroc(score, known)), "the other polarity gives the complement"


@given(st.lists(tasks(), min_size=1, max_size=4))
def test_histogram_equals_its_twin(several):
    # Away from the largest floats, where the twin's plain subtraction overflows.
    several = [(np.clip(score, -1e300, 1e300), known) for score, known in several]
    plain = [(score.tolist(), known.tolist()) for score, known in several]
    pooled = metrics.score_histogram(several)
    assert (pooled.known.tolist(), pooled.unknown.tolist()) == slow.histograms(plain)
    assert pooled.iou == exactly(slow.histogram_iou(plain))
