"""EOL and OSLO, which see all queries of a task at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.suite import DIM, double_task, toy_base
from glocal.research.methods.eol import EOL, Objective
from glocal.research.methods.oslo import OSLO
from glocal.research.types import Views
from reference import eol as slow
from reference import oslo as slow_oslo
from reference.feat import cross_entropy, pooled
from reference.oslo import unit


def build(**settings) -> EOL:
    method = EOL(DIM, **settings).double()
    method.set_base(toy_base())
    return method


def centred(maps: Tensor) -> Tensor:
    mean = toy_base().mean.double()
    return torch.stack([unit(vec - mean) for vec in pooled(maps)])


@pytest.mark.parametrize(
    ("shots", "settings"),
    [
        ((2, 1, 3), {"steps": 8}),
        ((1,), {}),
        ((2, 1, 3), {"steps": 0}),
        ((2, 1, 3), {"balance": "ways", "steps": 6}),
        ((2, 1, 3), {"scale": 4.0, "unknown_share": 0.3, "steps": 6, "rate": 0.05}),
    ],
)
def test_score_and_loss_equal_the_loops(shots: tuple[int, ...], settings: dict[str, Any]):
    method, task = build(**settings), double_task(shots=shots, n_query=2)
    support, query = centred(task.support), centred(task.query)
    how = {"scale": method.scale, "share": method.unknown_share}
    steps = {"steps": method.steps, "rate": method.rate, "balance": method.balance}
    fitted = slow.fit(support, task.support_label, query, **how, **steps)
    logits, outlier = slow.scores(fitted, support, query, **how)
    out = method(task)
    torch.testing.assert_close(out.logits, logits, rtol=0, atol=1e-10)
    torch.testing.assert_close(out.open_score, outlier, rtol=0, atol=1e-10)
    assert method.loss(task)["closed"].item() == pytest.approx(cross_entropy(logits, task.query_label), abs=1e-10)


@pytest.mark.parametrize("shots", [(2, 1, 3), (1, 1), (1,), (1, 4, 2, 1, 5)])
@pytest.mark.parametrize(("share", "balance"), [(0.5, "shots"), (0.2, "shots"), (0.3, "ways")])
def test_the_written_gradient_is_the_one_of_the_loss(shots: tuple[int, ...], share: float, balance: str):
    task = double_task(shots=shots)
    support, query, n = centred(task.support), centred(task.query), len(shots)
    rng = torch.Generator().manual_seed(1)
    spread = torch.tensor([1.0] * DIM + [0.3, 0.1], dtype=torch.float64)
    theta = (spread * torch.randn(n, DIM + 2, generator=rng, dtype=torch.float64)).requires_grad_()
    now = slow.Fitted(theta[:, :DIM], theta[:, DIM], theta[:, DIM + 1])
    how = {"scale": 10.0, "share": share, "balance": balance}
    terms = slow.loss(now, support, task.support_label, query, **how)
    (truth,) = torch.autograd.grad(sum(terms.values()), theta)
    written = Objective(torch.cat([support, query]), task.support_one_hot.double(), **how).gradient(theta.detach())
    torch.testing.assert_close(written, truth, rtol=0, atol=1e-10)
    assert truth.abs().min() > 0


@pytest.mark.parametrize("shots", [(1, 1), (2, 1, 3), (1,)])
@pytest.mark.parametrize(("steps", "inlier", "assignment"), [(2, 0.05, 0.1), (1, 0.05, 0.1), (4, 0.3, 0.2)])
def test_oslo_equals_its_loops(shots: tuple[int, ...], steps: int, inlier: float, assignment: float):
    method = OSLO(DIM, steps=steps, inlier_temperature=inlier, assignment_temperature=assignment)
    task = double_task(0, shots=shots)
    cosines, outlier = slow_oslo.scores(
        pooled(task.support), task.support_label, pooled(task.query), steps=steps, inlier=inlier, assignment=assignment
    )
    out = method(task)
    torch.testing.assert_close(out.logits, cosines, rtol=0, atol=1e-10)
    torch.testing.assert_close(out.open_score, outlier, rtol=0, atol=1e-10)
    assert method.loss(task)["closed"].item() == pytest.approx(cross_entropy(cosines, task.query_label), abs=1e-10)


def test_sure_inliers_of_oslo_keep_their_order() -> None:
    """1 - ξ is not computed by a subtraction that rounds all of them to 0."""
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.02], [-1.0, -0.2]])
    state = OSLO.State(x[:2], torch.eye(2))
    score = OSLO(2, inlier_temperature=0.03).score(state, Views(x[2:])).open_score
    assert 0 < score[0] < 1e-12
    assert score[0] < score[1]
