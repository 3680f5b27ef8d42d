"""The promise: thresholds from left-out scores and a score model, on scores whose truth is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from glocal.recognizer.score_fit import ScoredTask, fit_to_tasks
from glocal_runtime.probability import above, quantile, table_rows
from glocal_runtime.score_model import ScoreModel
from glocal_runtime.threshold import LeftOut, Threshold, plain_threshold
from refusal import refused

BETWEEN = 0.3


def task(rng: np.random.Generator, shots: tuple[int, ...], shift: float = 0.0, queries: int = 40) -> ScoredTask:
    """Scores that follow the score model exactly: mean -6 + 2 / k, spread 0.8 + 0.4 / k, normal."""

    def draw(effect: np.ndarray, label: np.ndarray, k: np.ndarray) -> np.ndarray:
        z = shift + math.sqrt(BETWEEN) * effect[label] + math.sqrt(1 - BETWEEN) * rng.standard_normal(len(label))
        return -6 + 2 / k + (0.8 + 0.4 / k) * z

    k, effect = np.array(shots, dtype=float), rng.standard_normal(len(shots))
    label = np.repeat(np.arange(len(shots)), queries)
    own = np.concatenate([np.full(s, c) for c, s in enumerate(shots) if s > 1] or [np.empty(0, int)]).astype(int)
    left = draw(effect, own, k[own] - 1) if len(own) else np.empty(0)
    logits = 3 * np.eye(len(shots))[label] + rng.standard_normal((len(label), len(shots)))
    return ScoredTask(
        shots,
        tuple(LeftOut(int(c), shots[c] - 1, float(u)) for c, u in zip(own, left, strict=True)),
        label,
        draw(effect, label, k[label]),
        logits,
        -6 + 2 / k.mean() + 3 + rng.standard_normal(100),
        tuple(-3 + 0.5 * rng.standard_normal(len(shots))),
    )


def tasks(n: int, seed: int, shots: tuple[int, ...] | None = None, shift: float = 0.0) -> list[ScoredTask]:
    rng = np.random.default_rng(seed)
    sizes = [tuple(int(k) for k in rng.integers(1, 21, size=rng.integers(2, 13))) for _ in range(n)]
    some = [(int(k[0]),) * len(k) if i % 2 else k for i, k in enumerate(sizes)]
    return [task(rng, shots or size, shift) for size in some]


@pytest.fixture(scope="module")
def fitted() -> ScoreModel:
    return fit_to_tasks(tasks(300, seed=0), classes=1000)


def achieved(model: ScoreModel, some: list[ScoredTask], share: float) -> float:
    values = [model.threshold(shots=t.shots, left_out=t.left_out, max_false_unknown=share).value for t in some]
    return float(np.mean([(t.score > value).mean() for t, value in zip(some, values, strict=True)]))


def test_it_finds_the_numbers_that_made_the_scores(fitted: ScoreModel) -> None:
    for k in (1.0, 2.0, 5.0, 20.0):
        mu, sigma = fitted.usual(5, np.array([k]))
        assert mu[0] == pytest.approx(-6 + 2 / k, abs=0.15)
        assert sigma[0] == pytest.approx(0.8 + 0.4 / k, abs=0.12)
    assert fitted.between == pytest.approx(BETWEEN, abs=0.06)
    assert 1.5 < fitted.kappa < 6  # the best is (1 - b) / b = 2.3


@pytest.mark.parametrize("shots", [(1,) * 5, (2,) * 5, (5,) * 5, (10,) * 5, (5,) * 20, (1, 2, 4, 8, 16)])
def test_the_mean_false_unknown_rate_is_the_promised_one(fitted: ScoreModel, shots: tuple[int, ...]) -> None:
    some = tasks(120, seed=1, shots=shots)
    assert achieved(fitted, some, 0.05) == pytest.approx(0.05, abs=0.02)
    assert achieved(fitted, some, 0.10) == pytest.approx(0.10, abs=0.03)


def test_with_many_photos_it_follows_a_support_the_head_does_not_know_and_says_so(fitted: ScoreModel) -> None:
    some = tasks(60, seed=2, shots=(10,) * 5, shift=3.0)
    found = [fitted.threshold(shots=t.shots, left_out=t.left_out) for t in some]
    assert achieved(fitted, some, 0.05) == pytest.approx(0.05, abs=0.03)
    assert all("outside the range the head knows: +" in " ".join(each.warnings) for each in found)
    usual = [fitted.threshold(shots=t.shots, left_out=t.left_out) for t in tasks(60, seed=3, shots=(10,) * 5)]
    assert sum("outside the range" in " ".join(each.warnings) for each in usual) <= 3


def test_classes_that_are_more_alike_than_any_it_knows_are_worth_a_warning(fitted: ScoreModel) -> None:
    def told(strange: tuple[float, ...]) -> list[str]:
        found = fitted.threshold(shots=(1,) * 5, left_out=(), strange=strange)
        return [warning for warning in found.warnings if "look more alike" in warning]

    assert sum(bool(told(one.strange)) for one in tasks(60, seed=9, shots=(1,) * 5)) <= 2
    assert "(-" in told((-4.5,) * 5)[0]
    assert not told((-1.0,) * 5)  # less alike only makes it easier


def test_a_smaller_promise_is_a_higher_threshold(fitted: ScoreModel) -> None:
    one = tasks(1, seed=4, shots=(3, 1, 7))[0]
    shares = (0.5, 0.2, 0.1, 0.05, 0.01, 0.001)
    found = [fitted.threshold(shots=one.shots, left_out=one.left_out, max_false_unknown=a) for a in shares]
    assert np.all(np.diff([each.value for each in found]) > 0)
    assert [each.expected for each in found] == pytest.approx(shares, rel=0.02)


def test_more_photos_steady_the_rate(fitted: ScoreModel) -> None:
    def width(k: int) -> float:
        some = tasks(20, seed=5, shots=(k,) * 5)
        found = [fitted.threshold(shots=t.shots, left_out=t.left_out).interval for t in some]
        return float(np.mean([high - low for low, high in found]))  # type: ignore[misc]

    assert width(1) > width(3) > width(10)


def test_one_photo_per_class_rests_on_the_score_model_alone(fitted: ScoreModel) -> None:
    found = fitted.threshold(shots=(1, 1, 1), left_out=())
    assert (found.source, found.n_scores) == ("score model", 0)
    low, high = fitted.usual_range((1, 1, 1))
    assert low < -4 < found.value < high
    assert any("too few photos to promise 5 %" in warning for warning in found.warnings)


def test_beyond_the_sizes_it_was_fitted_on_it_goes_on_monotonely_and_says_so(fitted: ScoreModel) -> None:
    inside, outside = (fitted.threshold(shots=(k,) * 12, left_out=()) for k in (20, 60))
    assert outside.extrapolated
    assert not inside.extrapolated
    assert outside.value < inside.value
    assert any("is carried on" in warning for warning in outside.warnings)
    assert fitted.threshold(shots=(5,) * 40, left_out=()).extrapolated


def test_per_class_thresholds_follow_their_class(fitted: ScoreModel) -> None:
    left = [LeftOut(0, 9, -7.0)] * 10 + [LeftOut(1, 9, -4.0)] * 10
    found = fitted.threshold(shots=(10, 10), left_out=left, per_class=True)
    assert found.per_class is not None
    assert found.per_class[0] < found.value < found.per_class[1]


def test_known_unknowns_far_away_raise_the_threshold_and_near_ones_do_not(fitted: ScoreModel) -> None:
    one = tasks(1, seed=6, shots=(5,) * 5)[0]
    plain = fitted.threshold(shots=one.shots, left_out=one.left_out)
    far = fitted.threshold(shots=one.shots, left_out=one.left_out, unknown_scores=[3.0, 3.5, 4.0, 2.8])
    near = fitted.threshold(shots=one.shots, left_out=one.left_out, unknown_scores=[-5.0, -4.8, -5.2, -5.1])
    assert plain.value < far.value < 3
    assert far.expected < 0.02
    assert near.value == plain.value
    two = fitted.threshold(shots=one.shots, left_out=one.left_out, unknown_scores=[3.0, 3.5])
    assert two.value == plain.value
    assert "2 known unknowns are too few" in two.warnings[-1]


def test_probabilities_are_shares_and_rise_with_the_score(fitted: ScoreModel) -> None:
    one = tasks(1, seed=7, shots=(5,) * 3)[0]
    threshold = fitted.threshold(shots=one.shots, left_out=one.left_out)
    logits, score = np.random.default_rng(0).standard_normal((50, 3)), np.linspace(-9, -1, 50)
    p = fitted.probabilities(logits, score, threshold)
    assert p.shape == (50, 4)
    assert p.sum(axis=1) == pytest.approx(1)
    assert (p[1:, 3] >= p[:-1, 3]).all()
    assert p[0, 3] < 0.05
    assert p[-1, 3] > 0.95
    assert (p[:, :3].argmax(axis=1) == logits.argmax(axis=1)).all()
    by_hand = replace(threshold, value=float(score[25]), source="user", midpoint=None, slope=None)
    assert fitted.probabilities(logits, score, by_hand)[25, 3] == pytest.approx(0.5, abs=1e-6)
    more = fitted.probabilities(logits, score, threshold, unknown_share=0.9)
    assert (more[:40, 3] > p[:40, 3]).all()


def test_probabilities_are_calibrated_on_new_tasks(fitted: ScoreModel) -> None:
    known, unknown = [], []
    for one in tasks(100, seed=8):
        threshold = fitted.threshold(shots=one.shots, left_out=one.left_out)
        for scores, into in ((one.score, known), (one.unknown, unknown)):
            logits = np.zeros((len(scores), len(one.shots)))
            into.append(float(fitted.probabilities(logits, scores, threshold)[:, -1].mean()))
    assert (np.mean(known) + np.mean(unknown)) / 2 == pytest.approx(0.5, abs=0.03)


def test_both_survive_json(fitted: ScoreModel) -> None:
    again = ScoreModel.from_json(json.loads(json.dumps(fitted.to_json())))
    assert again == fitted
    one = fitted.threshold(shots=(2, 2), left_out=[LeftOut(0, 1, -3.0)], per_class=True)
    assert Threshold.from_json(json.loads(json.dumps(one.to_json()))) == one
    nothing = plain_threshold(shots=(1, 1), left_out=())
    assert Threshold.from_json(json.loads(json.dumps(nothing.to_json()))) == nothing
    with refused("weights", "must be a table of power"):
        ScoreModel.from_json({"mean": [1, 2, 3]})
    with refused("data", "must be a table of"):
        Threshold.from_json({"value": 1.0})


def test_above_is_the_inverse_of_quantile(fitted: ScoreModel) -> None:
    table = table_rows(fitted.weights, fitted.quantiles, np.array([0.0, 0.3, 0.9]))
    for share in (0.9, 0.3, 0.05, 0.007, 0.0005):
        assert above(quantile(share, table)[None], table)[0] == pytest.approx([share] * 3, rel=1e-6)
    x = np.linspace(-40, 40, 400)[:, None].repeat(3, axis=1)
    assert (np.diff(above(x, table), axis=0) <= 0).all()


def test_plain_threshold_is_the_conformal_quantile() -> None:
    left = [LeftOut(i % 2, 9, float(i)) for i in range(20)]
    found = plain_threshold(shots=(10, 10), left_out=left, max_false_unknown=0.1)
    assert found.value == 18.0  # the 19th of 20: ceil(0.9 * 21)
    assert found.expected == pytest.approx(2 / 21)
    assert found.source == "leave-one-out"
    assert not found.warnings
    few = plain_threshold(shots=(10, 10), left_out=left, max_false_unknown=0.01)
    assert few.value == 19.0
    assert "too few photos to promise 1 %" in few.warnings[0]
    apart = plain_threshold(shots=(10, 10), left_out=left, max_false_unknown=0.1, per_class=True)
    assert apart.per_class == (18.0, 19.0)
    rng = np.random.default_rng(0)
    rates = []
    for _ in range(400):
        scores = rng.standard_normal(40)
        value = plain_threshold(shots=(40,), left_out=[LeftOut(0, 39, float(u)) for u in scores[:39]]).value
        rates.append(scores[39] > value)
    assert np.mean(rates) == pytest.approx(0.05, abs=0.03)


def test_a_head_without_a_score_model_refuses_to_promise_from_one_photo_per_class() -> None:
    found = plain_threshold(shots=(1, 1), left_out=())
    assert found.value == math.inf
    assert found.expected is None
    assert found.source == "none"
    assert "nothing can be promised from one photo per class (2 classes)" in found.warnings[0]
    some = plain_threshold(shots=(1, 1), left_out=(), unknown_scores=[1.0, 2.0, 3.0])
    assert some.source == "known unknowns"
    assert some.value == pytest.approx(1.1)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 5, 5e-324])
def test_a_promise_is_a_share(fitted: ScoreModel, share: float) -> None:
    with refused("recipe", "share between 0.0001 and 0.9999"):
        fitted.threshold(shots=(1,), left_out=(), max_false_unknown=share)
