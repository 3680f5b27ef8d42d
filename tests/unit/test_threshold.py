"""Thresholds from the support alone: the target rate comes out on photos drawn like it, in any unit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from glocal.recognizer.calibration.leave_one_out import LeftOut, Measured, measure
from glocal.recognizer.calibration.probability import probabilities
from glocal.recognizer.calibration.threshold import FITTED, compute_threshold, interval
from glocal.recognizer.decision import Decision, Promise, Threshold
from glocal.recognizer.diagnosis.outlook import outlook
from glocal.recognizer.diagnosis.rate import Rate
from glocal.recognizer.features import Features, Labels
from glocal.recognizer.heads.head import Scores, Trial, trials

WAY, DIM, PHOTO = 5, 24, 0.9


class Nearest:
    """Class means by Euclidean distance, in a unit of its own: a head without torch."""

    min_way, takes_unknown = 1, False

    def __init__(self, scale: float = 1.0, shift: float = 0.0) -> None:
        self.scale, self.shift = scale, shift

    def enroll(self, support: Features, label: Labels) -> np.ndarray:
        return np.stack([support.vec[label == c].mean(axis=0) for c in range(int(label.max()) + 1)])

    def compare(self, state: np.ndarray, query: Features) -> Scores:
        distance = np.linalg.norm(query.vec[:, None] - state[None], axis=2)
        return Scores(-distance, self.shift + self.scale * distance.min(axis=1), {})

    def trials(self, support: Features, asked: Features) -> Trial:
        return trials(self, support, asked)


def task(rng: np.random.Generator, shots: list[int], queries: int = 20) -> tuple[Features, Labels, Features, Labels]:
    """Classes around random centres, some wider than others; unknown ones are of further classes."""
    centre, wide = rng.standard_normal((len(shots) + 3, DIM)), PHOTO * rng.uniform(0.7, 1.3, len(shots) + 3)

    def photos(c: int, n: int) -> np.ndarray:
        return centre[c] + wide[c] * rng.standard_normal((n, DIM))

    support = Features(np.concatenate([photos(c, n) for c, n in enumerate(shots)]))
    known = Features(np.concatenate([photos(c, queries) for c in range(len(shots))]))
    return support, np.repeat(np.arange(len(shots)), shots), known, np.repeat(np.arange(len(shots)), queries)


def false_shares(shots: list[int], promises: list[Promise], tasks: int) -> np.ndarray:
    """Of each promise, over the same tasks."""
    head, rng, rates = Nearest(), np.random.default_rng(0), []
    for _ in range(tasks):
        support, label, known, _ = task(rng, shots)
        measured, compared = measure(head, support, label), head.compare(head.enroll(support, label), known)
        thresholds = [compute_threshold(each, shots, measured) for each in promises]
        rates.append([called_unknown(compared, each).mean() for each in thresholds])
    return np.mean(rates, axis=0)


def called_unknown(compared: Scores, threshold: Threshold) -> np.ndarray:
    return threshold.levelled(compared.open_score, compared.logits.argmax(axis=1)) > threshold.value


@pytest.mark.parametrize(
    ("shots", "promises"),
    [
        (3, [Promise(0.1)]),
        (5, [Promise(0.05), Promise(0.1), Promise(0.2)]),
        (6, [Promise(0.1)]),
        (10, [Promise(0.05), Promise(0.1)]),
    ],
)
def test_the_promised_share_comes_out_on_average(shots: int, promises: list[Promise]) -> None:
    for promise, found in zip(promises, false_shares([shots] * WAY, promises, 100), strict=True):
        assert found == pytest.approx(promise.target_rate, abs=0.3 * promise.target_rate)


@pytest.mark.parametrize("shots", [[2] * WAY, [2, 2], [3, 3], [5, 5], [3] * WAY, [2, 2, 1]])
def test_few_scores_keep_a_promise_that_is_less_than_one_of_them(shots: list[int]) -> None:
    """The largest of six left-out scores is passed by more than a tenth of further photos, whatever was promised."""
    least, usual, more = false_shares(shots, [Promise(0.02), Promise(0.05), Promise(0.1)], 100)
    assert least < 0.045
    assert usual == pytest.approx(0.05, abs=0.025)
    assert more == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize("shots", [[5], [10], [5, 5]])
def test_few_classes_keep_a_large_promise(shots: list[int]) -> None:
    some, more = false_shares(shots, [Promise(0.2), Promise(0.3)], 150)
    assert some == pytest.approx(0.2, abs=0.04)
    assert more == pytest.approx(0.3, abs=0.05)


def test_another_unit_of_the_score_gives_the_same_decisions() -> None:
    support, label, _, _ = task(np.random.default_rng(1), [4] * WAY)
    one, other = (
        compute_threshold(Promise(0.1), [4] * WAY, measure(head, support, label))
        for head in (Nearest(), Nearest(7.0, -3.0))
    )
    assert other.value == pytest.approx(7 * one.value - 3)
    assert other.levels == pytest.approx([7 * level for level in one.levels])
    single = Features(support.vec[::4]), label[::4]
    one, other = (
        compute_threshold(Promise(0.1), [1] * WAY, measure(head, *single)) for head in (Nearest(), Nearest(7.0, -3.0))
    )
    assert other.value == pytest.approx(7 * one.value - 3)
    assert one.source == "one photo"


def test_a_class_with_one_photo_among_eight_has_a_higher_level_and_leaves_the_others_their_rate() -> None:
    rng, head, shots, others, levels = np.random.default_rng(2), Nearest(), [1, 8, 8, 8, 8], [], []
    for _ in range(60):
        support, label, known, truth = task(rng, shots)
        threshold = compute_threshold(Promise(0.1), shots, measure(head, support, label))
        compared = head.compare(head.enroll(support, label), known)
        others.append(float(called_unknown(compared, threshold)[truth > 0].mean()))
        levels.append(threshold.levels)
    assert np.mean(others) == pytest.approx(0.1, abs=0.03)
    assert np.mean(levels, axis=0)[0] > np.mean(levels, axis=0)[1:].max()
    assert np.sum(levels, axis=1) == pytest.approx(np.zeros(60), abs=1e-9)


def test_a_wide_class_gets_a_higher_level_the_more_photos_show_it() -> None:
    rng, head = np.random.default_rng(4), Nearest()
    centre = 3 * rng.standard_normal((2, DIM))
    wide = []
    for shots in (3, 8, 20):
        narrow = centre[0] + 0.3 * rng.standard_normal((shots, DIM))
        vec = np.concatenate([narrow, centre[1] + rng.standard_normal((shots, DIM))])
        measured = measure(head, Features(vec), np.repeat([0, 1], shots))
        wide.append(compute_threshold(Promise(0.1), [shots] * 2, measured).levels[1])
    assert 0 < wide[0] < wide[1] < wide[2]


@pytest.mark.parametrize("shots", [[5] * 5, [2, 4, 3]])
def test_the_prediction_interval_narrows_with_photos_and_classes(shots: list[int]) -> None:
    support, label, _, _ = task(np.random.default_rng(0), shots)
    threshold = compute_threshold(Promise(), shots, measure(Nearest(), support, label))
    left = np.average(shots, weights=shots)  # over photos: those of large classes have more beside them
    weight, power = FITTED.worth
    worth = weight * left**power * len(shots) / (len(shots) + 1)
    assert threshold.interval == pytest.approx(interval(0.05, worth))


def test_confirmed_photos_move_the_threshold_to_where_they_lie_and_narrow_its_interval() -> None:
    rng, head = np.random.default_rng(11), Nearest()
    off, narrower = [], []
    for _ in range(40):
        support, label, known, _ = task(rng, [3] * WAY)
        measured = measure(head, support, label)
        compared = head.compare(head.enroll(support, label), known)
        nearest, asked = compared.logits.argmax(axis=1), rng.permutation(100)
        confirmed = tuple(LeftOut(i // 20, 3, float(compared.open_score[i]), 0, int(nearest[i])) for i in asked[:50])
        before = compute_threshold(Promise(0.1), [3] * WAY, measured)
        after = compute_threshold(Promise(0.1), [3] * WAY, replace(measured, confirmed=confirmed))
        off.append([abs(called_unknown(compared, each)[asked[50:]].mean() - 0.1) for each in (before, after)])
        assert before.interval is not None
        assert after.interval is not None
        narrower.append(after.interval[1] - after.interval[0] < before.interval[1] - before.interval[0])
    assert all(narrower)
    assert np.mean(off, axis=0)[1] < np.mean(off, axis=0)[0]


def test_a_smaller_promise_is_a_higher_threshold_and_one_photo_promises_nothing() -> None:
    for shots in (1, 2, 3, 5):
        support, label, _, _ = task(np.random.default_rng(5), [shots] * WAY)
        measured = measure(Nearest(), support, label)
        values = [compute_threshold(Promise(share), [shots] * WAY, measured).value for share in (0.3, 0.1, 0.05, 0.02)]
        assert values == sorted(values)
    found = compute_threshold(Promise(), [1], measure(Nearest(), Features(np.ones((1, 3))), np.array([0])))
    assert (found.value, found.source, found.expected) == (float("inf"), "none", None)
    assert found.warnings


def test_known_unknowns_lower_the_threshold_only_as_far_as_is_allowed() -> None:
    support, label, _, _ = task(np.random.default_rng(6), [6] * WAY)
    measured = measure(Nearest(), support, label)
    now = compute_threshold(Promise(0.05), [6] * WAY, measured)
    below = now.value - 0.02  # a little more known than the threshold asks for
    near = tuple(LeftOut(-1, 0, below, i, i % WAY) for i in range(10))
    near = tuple(each._replace(score=each.score + now.levels[each.nearest]) for each in near)
    with_them = replace(measured, unknown=near)
    assert compute_threshold(Promise(0.05), [6] * WAY, with_them) == now
    lower = compute_threshold(Promise(0.05, with_unknown=0.4), [6] * WAY, with_them)
    assert lower.value < compute_threshold(Promise(0.05), [6] * WAY, with_them).value
    assert lower.expected is not None
    assert 0.05 < lower.expected <= 0.4


def test_the_largest_probability_is_the_answer() -> None:
    support, label, known, _ = task(np.random.default_rng(7), [5] * WAY)
    head = Nearest()
    threshold = compute_threshold(Promise(0.2), [5] * WAY, measure(head, support, label))
    compared = head.compare(head.enroll(support, label), known)
    shares = probabilities(compared, threshold)
    answer = np.where(called_unknown(compared, threshold), WAY, compared.logits.argmax(axis=1))
    assert (shares.argmax(axis=1) == answer).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert WAY in answer


def test_the_outlook_tells_guessing_from_knowing_and_asks_for_a_second_class() -> None:
    rng, head = np.random.default_rng(8), Nearest()
    support, label, _, _ = task(rng, [6] * WAY)
    measured = measure(head, support, label)
    good = outlook([6] * WAY, Decision(compute_threshold(Promise(), [6] * WAY, measured), measured))
    assert good.usable
    assert good.named_right is not None
    assert good.named_right.value > 0.6
    noise = Features(rng.standard_normal((30, DIM)))
    measured = measure(head, noise, label)
    bad = outlook([6] * WAY, Decision(compute_threshold(Promise(), [6] * WAY, measured), measured))
    assert bad.usable is False
    assert "not usable" in bad.verdict
    measured = measure(head, support.rows([0, 6, 12]), np.arange(3))
    early = outlook([1] * 3, Decision(compute_threshold(Promise(), [1] * 3, measured), measured))
    assert early.usable is None
    assert (early.named_right, early.named_right_expected) == (None, None)
    assert "cannot be judged from one photo" in early.verdict
    support, label, _, _ = task(np.random.default_rng(9), [6] * WAY)
    measured = measure(Nearest(), support.rows(range(6)), label[:6])
    alone = outlook([6], Decision(compute_threshold(Promise(), [6], measured), measured))
    assert (alone.usable, alone.named_right, alone.caught) == (None, None, None)
    assert "class" in alone.verdict
    assert "two photos" not in alone.verdict  # it has six


def test_the_outlook_expects_more_names_right_than_were_counted_without_the_photo() -> None:
    left = tuple(LeftOut(i % 5, 1, 0.0, i, i % 5 if i < 7 else (i + 1) % 5) for i in range(10))  # 7 of 10 right
    said = outlook([2] * 5, Decision(compute_threshold(Promise(), [2] * 5, Measured(left)), Measured(left)))
    assert said.named_right is not None
    assert (said.named_right.k, said.named_right.n) == (7, 10)
    odds = 7.5 / 3.5 * np.exp(0.5)
    assert said.named_right_expected == pytest.approx(odds / (1 + odds))
    assert "with all photos about 78 %" in said.lines()[1]
    assert said.to_json()["named_right_expected"] == said.named_right_expected


@pytest.mark.parametrize(
    ("shots", "right", "usable"),
    [(5, 8, False), (5, 10, True), (3, 5, False), (3, 7, True), (2, 2, False), (2, 3, None), (2, 5, True)],
)
def test_naming_that_guessing_explains_as_well_is_not_usable_and_of_few_photos_not_told(
    shots: int, right: int, usable: bool | None
) -> None:
    left = tuple(
        LeftOut(i % 5, shots - 1, 0.1 * (i % 7), i, i % 5 if i < right else (i + 1) % 5) for i in range(5 * shots)
    )
    measured = Measured(left)
    said = outlook([shots] * 5, Decision(compute_threshold(Promise(), [shots] * 5, measured), measured))
    assert said.usable is usable


def test_the_interval_of_unknown_things_rests_on_classes_and_not_on_their_photos() -> None:
    strange = tuple(LeftOut(c, 0, 5.0, 8 * c + i, (c + 1) % 5) for c in range(5) for i in range(8))
    left = tuple(LeftOut(c, 7, 0.1 * i, 8 * c + i, c) for c in range(5) for i in range(8))
    measured = Measured(left, strange=strange)
    said = outlook([8] * 5, Decision(compute_threshold(Promise(), [8] * 5, measured), measured))
    assert said.caught is not None
    assert (said.caught.k, said.caught.n) == (40, 40)
    assert said.caught.interval == pytest.approx(Rate(5, 5).interval)
