"""Support photos scored without themselves, and classes as strangers to each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glocal.methods import METHODS
from glocal.methods.protonet import ProtoNet
from glocal.recognizer.torch_model import TorchHead
from glocal_runtime import leave_one_out as module
from glocal_runtime.leave_one_out import carried_over, leave_one_out, left_out_scores, measure, single_photos, strangers
from glocal_runtime.views import Labels, Views
from photos import recognizer, some

PROTONET = TorchHead(ProtoNet(5, distance="cosine", open_score="distance"))


def task() -> tuple[Views, Labels]:
    rng, label = np.random.default_rng(0), np.array([0, 0, 0, 1, 2, 2])
    vec = rng.standard_normal((6, 8)) + label[:, None]
    local = rng.standard_normal((6, 4, 2, 2)) + label.reshape(-1, 1, 1, 1)
    return Views(vec.astype(np.float32), local.astype(np.float32)), label


def gel() -> TorchHead:
    torch.manual_seed(0)
    return TorchHead(METHODS["gel"](8, distance="cosine").eval())


def test_every_photo_of_a_class_with_others_is_left_out_also_of_equal_ones() -> None:
    views, label = task()
    views.vec[1], views.local[1] = views.vec[0], views.local[0]
    found = leave_one_out(gel(), views, label)
    assert sorted(each.photo for each in found) == [0, 1, 2, 4, 5]
    for each in found:
        assert int(label[each.photo]) == each.label
        assert each.score == torch.tensor(each.parts["E_c"]).add(each.parts["E_f"]).item()


def test_some_classes_alone_are_judged_as_if_each_photo_had_not_been_there(monkeypatch: pytest.MonkeyPatch) -> None:
    (views, label), head = task(), gel()
    monkeypatch.setattr(module, "FEW_PAIRS", 0)
    found = {each.photo: each for each in left_out_scores(head, views, label, changed={2})}
    assert found.keys() == {4, 5}
    for photo, each in found.items():
        kept = np.arange(6) != photo
        out = head.compare(head.enroll(views.rows(kept), label[kept]), views.rows([photo]))
        assert (each.label, each.shots) == (2, 1)
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


def test_scores_follow_their_class_to_its_new_place() -> None:
    who = recognizer()
    old, left = who.contents.support, who.contents.decision.left_out
    new = old.without("zero").renamed("two", "deux")
    kept = carried_over(left, old, new)
    assert len(kept) == 10
    for each in kept:
        [origin] = [one for one in left if one.score == each.score and one.label == each.label + 1]
        assert new.photos[each.photo] is old.photos[origin.photo]


def test_left_out_scores_are_those_of_enrolling_without_the_photo() -> None:
    vec, label = np.random.default_rng(0).standard_normal((8, 5)), np.array([0, 0, 0, 1, 2, 2, 2, 2])
    found = leave_one_out(PROTONET, Views(vec), label)
    assert sorted((one.label, one.shots) for one in found) == [(0, 2)] * 3 + [(2, 3)] * 4
    for turn in range(3):  # the photos of one turn are left out together
        out = [turn, 4 + turn]
        kept = [i for i in range(8) if i not in out]
        means = [vec[[i for i in kept if label[i] == c]].mean(axis=0) for c in range(3)]
        for one in (one for one in found if one.photo in out):
            assert one.score == pytest.approx(-max(cosine(vec[one.photo], mean) for mean in means) / 0.1, abs=1e-4)
    assert leave_one_out(PROTONET, Views(vec[:2]), np.array([0, 1])) == []


def test_strangers_are_photos_of_a_class_that_is_not_enrolled() -> None:
    vec, label = np.random.default_rng(1).standard_normal((7, 5)), np.array([0, 2, 1, 1, 2, 0, 1])
    found = strangers(PROTONET, Views(vec), label)
    assert sorted(each.photo for each in found) == list(range(7))
    for each in found:
        assert each.label == label[each.photo] != each.nearest
        means = {c: vec[label == c].mean(axis=0) for c in range(3) if c != each.label}
        best = {c: cosine(vec[each.photo], mean) / 0.1 for c, mean in means.items()}
        assert each.score == pytest.approx(-max(best.values()), abs=1e-4)
        assert best[each.nearest] == max(best.values())
    assert strangers(PROTONET, Views(vec[:2]), np.array([0, 0])) == []


def test_single_photos_meet_a_class_cut_down_to_one_among_the_others_as_they_are() -> None:
    vec, label = np.random.default_rng(2).standard_normal((7, 5)), np.array([0, 0, 0, 1, 1, 2, 0])
    found = single_photos(PROTONET, Views(vec), label)
    assert {(each.label, each.shots) for each in found} == {(0, 1)}  # the only class with three or more
    rows = [0, 1, 2, 6]
    expected = []
    for keep in rows[:2]:
        means = [vec[keep], vec[[3, 4]].mean(axis=0), vec[5]]
        expected += [-max(cosine(vec[i], mean) for mean in means) / 0.1 for i in rows if i != keep]
    assert [each.score for each in found] == pytest.approx(expected, abs=1e-4)


def test_known_unknowns_are_scored_without_themselves() -> None:
    torch.manual_seed(0)
    head = TorchHead(METHODS["glocal-ridge"](4).eval())
    maps = torch.rand(9, 4, 2, 2)
    seen = METHODS["glocal-ridge"](4).embed(maps)
    views = Views(seen.vec.numpy(), seen.local.numpy())  # type: ignore[union-attr]
    support, label, aside = views.rows(slice(0, 6)), np.array([0, 0, 0, 1, 1, 1]), views.rows(slice(6, 9))
    found = measure(head, support, label, aside=aside).unknown
    assert [each.photo for each in found] == [0, 1, 2]
    for each in found:
        rest = aside.rows([i for i in range(3) if i != each.photo])
        state = module.enroll(head, support, label, rest)
        score = head.compare(state, aside.rows([each.photo])).open_score[0]
        assert each.score == pytest.approx(float(score), abs=1e-6)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
