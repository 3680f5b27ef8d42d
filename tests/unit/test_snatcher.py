from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from conformance.suite import DIM, double_task
from glocal.research.methods import snatcher
from glocal.research.methods.feat import FEAT
from glocal.research.methods.snatcher import SnaTCHerF, movement
from glocal.research.methods.snatcher_norm import SnaTCHerL, SnaTCHerNorm, SnaTCHerT, swapped_task_moments
from reference import feat as slow_feat
from reference import snatcher as slow
from reference import snatcher_norm as slow_norm
from reference.feat import pooled
from reference.similarity import class_mean, neg_sq_euclidean


def build(**settings) -> SnaTCHerF:
    torch.manual_seed(0)
    return SnaTCHerF(DIM, **settings).double().eval()


@pytest.mark.parametrize("shots", [(1, 1), (2, 1, 3), (1,)])
def test_score_equals_the_loop_over_queries(shots: tuple[int, ...]):
    method, task = build(), double_task(0, shots=shots)
    support, query = method.views(task)
    state = method.enroll(support, task.support_one_hot)
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


def test_taking_turns_changes_nothing():
    method, task, sizes = build(), double_task(n_query=200), []
    support, query = method.views(task)
    state = method.enroll(support, task.support_one_hot)
    logits = method.score(state, query).logits

    def noted(raw, query, at):
        sizes.append(len(query))
        return method.attend.swapped(raw, query, at)

    turns = movement(noted, state, query.vec, logits)
    slices = zip(query.vec.split(100), logits.split(100), strict=True)
    alone = torch.cat([movement(method.attend.swapped, state, vec, some) for vec, some in slices])
    torch.testing.assert_close(turns, alone, rtol=0, atol=1e-12)
    assert max(sizes) <= snatcher.SWAPPED_QUERIES < len(query)


BOTH = pytest.mark.parametrize("method_type", [SnaTCHerT, SnaTCHerL])
SHOTS = pytest.mark.parametrize("shots", [(1, 1), (2, 1, 3), (1,), (1, 4, 2, 1, 5)])


def build_norm(method_type: type[SnaTCHerNorm], dim: int = DIM, **settings) -> SnaTCHerNorm:
    """With parameters away from where they start: a gain of 1 or a trust of one half would hide mistakes."""
    torch.manual_seed(0)
    method = method_type(dim, **settings).double().eval()
    for parameter in method.parameters():
        torch.nn.init.normal_(parameter, mean=0.3, std=0.3)
    return method


def transform(method: SnaTCHerNorm, n_support: int) -> Callable[[Tensor], Tensor]:
    if isinstance(method, SnaTCHerT):
        return lambda stack: slow_norm.task_norm(method, stack, n_support)
    return lambda stack: slow_norm.layer_task_norm(method, stack)


@BOTH
@SHOTS
def test_logits_and_open_score_equal_the_loop_over_queries(method_type: type[SnaTCHerNorm], shots: tuple[int, ...]):
    method, task = build_norm(method_type, temperature=7.0), double_task(0, shots=shots)
    out, normalise = method(task), transform(method, sum(shots))
    raw, query = class_mean(pooled(task.support), task.support_label), pooled(task.query)
    logits = neg_sq_euclidean(query, normalise(raw)) / 7
    torch.testing.assert_close(out.logits, logits, rtol=0, atol=1e-10)
    torch.testing.assert_close(out.open_score, slow.movement(normalise, raw, query, logits), rtol=0, atol=1e-10)
    assert out.open_score.min() > 0


def test_moments_of_a_swapped_stack_far_from_the_origin_keep_their_digits():
    x, other = 1e3 + torch.randn(5, 8), 1e3 + torch.randn(6, 8)
    at = torch.tensor([0, 4, 2, 2, 1, 3])
    found = swapped_task_moments(x, other, at)
    for i in range(6):
        stack = x.double()
        stack[at[i]] = other[i].double()
        assert (found.mean[i, 0] - stack.mean(0)).abs().max() < 1e-3
        torch.testing.assert_close(found.variance[i, 0].double(), stack.var(0, correction=0), rtol=1e-2, atol=1e-3)
