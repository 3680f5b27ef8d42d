from __future__ import annotations

import pytest
import torch

from conformance.suite import DIM, double_task
from glocal.methods import snatcher
from glocal.methods.feat import FEAT
from glocal.methods.snatcher import SnaTCHerF, movement
from glocal.types import Views
from reference import feat as slow_feat
from reference import snatcher as slow


def build(**settings) -> SnaTCHerF:
    torch.manual_seed(0)
    return SnaTCHerF(DIM, **settings).double().eval()


@pytest.mark.parametrize("shots", [(1, 1), (2, 1, 3), (1,)])
def test_score_equals_the_loop_over_queries(shots: tuple[int, ...]):
    method, task = build(), double_task(0, shots=shots)
    support, query = method.views(task)
    state = method.enroll(support, task.support_label)
    out = method.score(state, query)
    with_layer = slow.movement(method.attend, state.raw, query.vec, out.logits)
    with_loops = slow.movement(lambda x: slow_feat.attend(method.attend, x), state.raw, query.vec, out.logits)
    torch.testing.assert_close(out.open_score, with_layer, rtol=0, atol=1e-10)
    torch.testing.assert_close(out.open_score, with_loops, rtol=0, atol=1e-10)
    assert out.open_score.min() > 0


def test_logits_and_loss_are_those_of_feat():
    method, task = build(contrast_weight=0.1), double_task()
    feat = FEAT(DIM, contrast_weight=0.1).double().eval()
    feat.load_state_dict(method.state_dict())
    assert torch.equal(method(task).logits, feat(task).logits)
    assert {k: v.item() for k, v in method.loss(task).items()} == {k: v.item() for k, v in feat.loss(task).items()}


@pytest.mark.parametrize(("floats", "queries"), [(1, 512), (3 * DIM * 4, 512), (2**22, 5)])
def test_taking_turns_changes_nothing(monkeypatch: pytest.MonkeyPatch, floats: int, queries: int):
    method, task = build(), double_task()
    whole, sizes = method(task).open_score, []

    def spy(raw, query, at):
        sizes.append(len(query))
        return method.attend.swapped(raw, query, at)

    monkeypatch.setattr(snatcher, "SWAPPED_FLOATS", floats)
    monkeypatch.setattr(snatcher, "SWAPPED_QUERIES", queries)
    support, query = method.views(task)
    state = method.enroll(support, task.support_label)
    turns = movement(spy, state, query.vec, method.score(state, query).logits)
    torch.testing.assert_close(turns, whole, rtol=0, atol=1e-12)
    assert len(sizes) > 1
    assert max(sizes) <= max(1, min(queries, floats // (3 * DIM)))


def test_a_query_equal_to_its_prototype_moves_nothing():
    method = build()
    state = method.enroll(Views(torch.eye(DIM, dtype=torch.float64)[:3]), torch.arange(3))
    proto = state.raw.clone()
    logits = torch.eye(3, dtype=torch.float64)
    still = movement(method.attend.swapped, state, proto, logits)
    moved = movement(method.attend.swapped, state, proto, logits.roll(1, dims=0))
    assert still.max() < 1e-20
    assert moved.min() > 1e-3
