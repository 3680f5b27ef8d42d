"""Support photos scored without themselves, and classes as strangers to each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glocal.recognizer.calibration import leave_one_out as module
from glocal.recognizer.calibration.leave_one_out import (
    AT_ONCE,
    FEW_PAIRS,
    Trials,
    leave_one_out,
    measure,
    with_unknowns,
)
from glocal.recognizer.calibration.threshold import compute_threshold
from glocal.recognizer.decision import Promise
from glocal.recognizer.features import Features, Labels, unit
from glocal.recognizer.heads.head import Head
from glocal.recognizer.heads.prototypes import Prototypes
from glocal.recognizer.heads.ridge import MOST, Ridge
from photos import recognizer, some

PROTONET = Prototypes()


def test_some_classes_alone_are_judged_as_if_each_photo_had_not_been_there() -> None:
    head, views, label, _ = ridge_task([3] * 100, 0)
    assert len(label) * 100 > FEW_PAIRS
    found = {each.photo: each for each in measure(head, views, label, changed={2}).left_out}
    assert found.keys() == {2, 102, 202}
    for photo, each in found.items():
        kept = np.arange(300) != photo
        out = head.compare(head.enroll(views.rows(kept), label[kept]), views.rows([photo]))
        assert (each.label, each.shots) == (2, 2)
        assert abs(each.score - out.open_score.item()) < 1e-4
        assert each.nearest == out.logits.argmax().item()


def test_a_large_recognizer_keeps_the_scores_of_what_did_not_change(monkeypatch) -> None:
    monkeypatch.setattr(module, "FEW_PAIRS", 0)
    who = recognizer()
    before = who.contents.decision.left_out
    who.add_class("six", some("six", 0, 3))
    after = who.contents.decision.left_out
    assert after[: len(before)] == before
    assert [(each.label, each.photo) for each in after[len(before) :]] == [(3, 15), (3, 16), (3, 17)]
    who.remove_class("zero")
    assert max(each.nearest for each in who.contents.decision.left_out) <= 2
    assert [(each.label, each.photo) for each in who.contents.decision.left_out if each.label == 2] == [
        (2, 10),
        (2, 11),
        (2, 12),
    ]


def ridge_task(shots: list[int], aside: int) -> tuple[Head, Features, Labels, Features]:
    """Classes in turns, photos of a class alike; the last ``aside`` photos are known unknowns."""
    rng = np.random.default_rng(5)
    label = np.concatenate([np.arange(len(shots))[np.array(shots) > turn] for turn in range(max(shots))])
    maps = np.concatenate([rng.random((len(shots), 4, 3, 3))[label], rng.random((aside, 4, 3, 3))])
    maps += 0.5 * rng.random(maps.shape)
    views = Features(unit(maps.mean(axis=(2, 3))), (unit(maps, axis=1),))
    return Ridge(), views.rows(slice(len(label))), label, views.rows(slice(len(label), None))


def slow_measure(head: Head, views: Features, label: Labels, aside: Features) -> list[list[tuple[float, int, int]]]:
    """(score, photo, nearest) of those left out, strangers and known unknowns, enrolled anew each time."""
    shots, n = np.bincount(label), len(label)

    def scored(kept: list[int], asked: Features, photos: list[int], classes: list[int], rest: Features) -> list:
        place = {c: i for i, c in enumerate(classes)}
        state = head.enroll(*with_unknowns(head, views.rows(kept), np.array([place[label[i]] for i in kept]), rest))
        found = head.compare(state, asked)
        nearest = [classes[i] for i in found.logits.argmax(axis=1)]
        return list(zip(found.open_score.tolist(), photos, nearest, strict=True))

    every = list(range(len(shots)))
    left, strange, unknown = [], [], []
    for turn in range(max(shots)):
        out = [np.flatnonzero(label == c)[turn] for c in every if shots[c] > max(turn, 1)]
        left += scored([i for i in range(n) if i not in out], views.rows(out), out, every, aside)
    for c in every:
        rows = np.flatnonzero(label == c).tolist()
        kept = [i for i in range(n) if label[i] != c]
        strange += scored(kept, views.rows(rows), rows, [each for each in every if each != c], aside)
    for fold in range(min(5, len(aside))):
        part = list(range(fold, len(aside), 5))
        rest = aside.rows([i for i in range(len(aside)) if i not in part])
        unknown += scored(list(range(n)), aside.rows(part), part, every, rest)
    return [left, strange, unknown]


@pytest.mark.parametrize(
    ("shots", "n_aside", "head"),
    [([4, 4, 4], 0, Ridge()), ([5, 1, 3, 2], 7, Ridge()), ([1, 1, 1], 2, Ridge()), ([5, 1, 3, 2], 0, PROTONET)],
)
def test_measuring_is_what_enrolling_anew_each_time_gives(shots: list[int], n_aside: int, head: Head) -> None:
    _, views, label, aside = ridge_task(shots, n_aside)
    found = measure(head, views, label, aside=aside if n_aside else None)
    expected = slow_measure(head, views, label, aside)
    for ours, theirs in zip((found.left_out, found.strange, found.unknown), expected, strict=True):
        assert [(each.photo, each.nearest) for each in ours] == [(photo, nearest) for _, photo, nearest in theirs]
        assert [each.score for each in ours] == pytest.approx([score for score, _, _ in theirs], abs=1e-6)
    state = head.enroll(*with_unknowns(head, views, label, aside))
    assert found.own == pytest.approx(head.compare(state, views).open_score.mean(), abs=1e-6)
    if len(found.left_out):
        pairs = zip(found.left_out, expected[0], strict=True)
        slow = replace(found, left_out=tuple(each._replace(score=score) for each, (score, _, _) in pairs))
        ours, theirs = (compute_threshold(Promise(), shots, each) for each in (found, slow))
        assert ours.value == pytest.approx(theirs.value, abs=1e-6)
        assert ours.levels == pytest.approx(theirs.levels, abs=1e-6)


def test_patches_of_a_pair_of_photos_are_matched_once() -> None:
    pairs = []

    class Counting(Ridge):
        def match(self, a: Any, b: Any, shape: tuple[int, int]) -> Any:
            pairs.append(shape[0] * shape[1])
            return super().match(a, b, shape)

    _, views, label, aside = ridge_task([4, 4, 4], 3)
    measure(Counting(), views, label, aside=aside)
    assert pairs == [15 * 15]


def test_photos_are_left_out_of_a_support_that_keeps_its_way_of_deciding() -> None:
    head, views, label, _ = ridge_task([6] * 101, 0)
    assert len(label) - 101 < MOST < len(label), "a round leaves fewer than the kernel takes"
    found = measure(head, views, label)
    for each in (*found.left_out, *found.strange):
        assert each.parts.keys() == {"E_c"}, "prototypes decide alone, as they do for the whole support"
    assert len(label) * 101 > FEW_PAIRS
    [*_, last] = measure(head, views, label, changed={2}).left_out
    assert last.parts.keys() == {"E_c"}


def test_many_photos_are_asked_about_in_turns() -> None:
    n = AT_ONCE + 10
    vec = unit(np.random.default_rng(0).standard_normal((2 * n, 5)))
    found = leave_one_out(Trials(PROTONET, Features(vec), np.arange(2 * n) % n))
    assert sorted(each.photo for each in found) == list(range(2 * n))
    for each in found:
        others = vec[n:] if each.photo < n else vec[:n]  # one photo of each class is left
        assert each.score == pytest.approx(-float((others @ vec[each.photo]).max()) / 0.1, abs=1e-4)
