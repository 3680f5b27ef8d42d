"""Support photos judged by the others."""

from __future__ import annotations

import torch

from glocal.engine.calibrate import left_out_scores
from glocal.methods import METHODS
from glocal.recognizer.contents import carried_over
from glocal.recognizer.left_out import left_out, left_out_of
from glocal.types import Views
from glocal_runtime import decision
from photos import recognizer, some


def task(seed: int = 0) -> tuple[Views, torch.Tensor]:
    torch.manual_seed(seed)
    label = torch.tensor([0, 0, 0, 1, 2, 2])
    return Views(torch.randn(6, 8) + label[:, None], torch.randn(6, 4, 2, 2) + label.view(-1, 1, 1, 1)), label


def gel() -> torch.nn.Module:
    torch.manual_seed(0)
    return METHODS["gel"](8, distance="cosine").eval()


def test_it_adds_photo_nearest_and_parts_to_the_scores_of_the_engine() -> None:
    (views, label), method = task(), gel()
    found = left_out(method, views, label)
    assert [each.loo for each in found] == left_out_scores(method, views, label)
    assert sorted(each.photo for each in found) == [0, 1, 2, 4, 5]
    assert all(int(label[each.photo]) == each.label for each in found)
    for each in found:
        assert each.score == torch.tensor(each.parts["E_c"]).add(each.parts["E_f"]).item()


def test_equal_photos_are_told_apart() -> None:
    views, label = task()
    views.vec[1], views.local[1] = views.vec[0], views.local[0]
    assert sorted(each.photo for each in left_out(gel(), views, label)) == [0, 1, 2, 4, 5]


def test_some_classes_alone_are_judged_as_if_each_photo_had_not_been_there() -> None:
    (views, label), method = task(), gel()
    found = {each.photo: each for each in left_out_of(method, views, label, {2})}
    assert found.keys() == {4, 5}
    for photo, each in found.items():
        kept = torch.arange(6) != photo
        with torch.inference_mode():
            state = method.enroll(views.rows(kept), label[kept])
            out = method.score(state, views.rows(torch.tensor([photo])))
        assert (each.label, each.shots) == (2, 1)
        assert abs(each.score - out.open_score.item()) < 1e-4
        assert each.nearest == out.logits.argmax().item()


def test_a_large_recognizer_keeps_the_scores_of_what_did_not_change(monkeypatch) -> None:
    monkeypatch.setattr(decision, "FEW_PAIRS", 0)
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
