"""Support photos scored without themselves, and classes as strangers to each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glocal.methods import METHODS
from glocal.methods.protonet import ProtoNet
from glocal.recognizer.torch_model import TorchHead
from glocal_runtime import leave_one_out as module
from glocal_runtime.leave_one_out import carried_over, leave_one_out, leave_one_out_of, strange_scores
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


def test_some_classes_alone_are_judged_as_if_each_photo_had_not_been_there() -> None:
    (views, label), head = task(), gel()
    found = {each.photo: each for each in leave_one_out_of(head, views, label, {2})}
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


def test_strange_scores_are_those_of_a_class_that_is_not_enrolled() -> None:
    vec, label = np.random.default_rng(1).standard_normal((7, 5)), np.array([0, 2, 1, 1, 2, 0, 1])
    found = strange_scores(PROTONET, Views(vec), label)
    for c in range(3):
        means = [vec[label == other].mean(axis=0) for other in range(3) if other != c]
        best = [max(cosine(row, mean) for mean in means) / 0.1 for row in vec[label == c]]
        assert found[c] == pytest.approx(-np.mean(best), abs=1e-4)
    assert strange_scores(PROTONET, Views(vec[:2]), np.array([0, 0])) == []


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
