from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from conformance.suite import DIM, double_task
from glocal.methods.snatcher_norm import SnaTCHerL, SnaTCHerNorm, SnaTCHerT, swapped_task_moments
from glocal.types import Views
from reference import snatcher as slow_snatcher
from reference import snatcher_norm as slow
from reference.feat import pooled
from reference.similarity import class_mean, neg_sq_euclidean

BOTH = pytest.mark.parametrize("method_type", [SnaTCHerT, SnaTCHerL])
SHOTS = pytest.mark.parametrize("shots", [(1, 1), (2, 1, 3), (1,), (1, 4, 2, 1, 5)])


def build(method_type: type[SnaTCHerNorm], dim: int = DIM, **settings) -> SnaTCHerNorm:
    """With parameters away from where they start: a gain of 1 or a trust of one half would hide mistakes."""
    torch.manual_seed(0)
    method = method_type(dim, **settings).double().eval()
    for parameter in method.parameters():
        torch.nn.init.normal_(parameter, mean=0.3, std=0.3)
    return method


def transform(method: SnaTCHerNorm, n_support: int) -> Callable[[Tensor], Tensor]:
    if isinstance(method, SnaTCHerT):
        return lambda stack: slow.task_norm(method, stack, n_support)
    return lambda stack: slow.layer_task_norm(method, stack)


@BOTH
@SHOTS
def test_logits_and_open_score_equal_the_loop_over_queries(method_type: type[SnaTCHerNorm], shots: tuple[int, ...]):
    method, task = build(method_type, temperature=7.0), double_task(0, shots=shots)
    out, normalise = method(task), transform(method, sum(shots))
    raw, query = class_mean(pooled(task.support), task.support_label), pooled(task.query)
    logits = neg_sq_euclidean(query, normalise(raw)) / 7
    torch.testing.assert_close(out.logits, logits, rtol=0, atol=1e-10)
    torch.testing.assert_close(
        out.open_score, slow_snatcher.movement(normalise, raw, query, logits), rtol=0, atol=1e-10
    )
    assert out.open_score.min() > 0


def test_trust_starts_at_one_half():
    state = SnaTCHerT(4).enroll(Views(torch.eye(4)[:3]), torch.arange(3))
    assert state.trust.item() == 0.5


def test_moments_of_a_swapped_stack_far_from_the_origin_keep_their_digits():
    x, other = 1e3 + torch.randn(5, 8), 1e3 + torch.randn(6, 8)
    at = torch.tensor([0, 4, 2, 2, 1, 3])
    found = swapped_task_moments(x, other, at)
    for i in range(6):
        stack = x.double()
        stack[at[i]] = other[i].double()
        assert (found.mean[i, 0] - stack.mean(0)).abs().max() < 1e-3
        torch.testing.assert_close(found.variance[i, 0].double(), stack.var(0, correction=0), rtol=1e-2, atol=1e-3)


@BOTH
def test_gradient_of_the_movement(method_type: type[SnaTCHerNorm]):
    method, logits = build(method_type, 3), torch.eye(2)[[0, 1, 1]]
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    other = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    label = torch.arange(2)
    assert gradcheck(lambda a, b: method.moved(method.enroll(Views(a), label), b, logits), (x, other))
