from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from conformance.suite import DIM, double_task
from glocal.research.methods.ascm import ASCM, neighbourhood_loss, salient
from glocal.research.methods.gel import GEL
from reference import ascm as slow


def build(**settings: Any) -> ASCM:
    torch.manual_seed(0)
    return ASCM(DIM, temperature=9.0, **settings).double().eval()


@pytest.mark.parametrize("way", [1, 2, 4])
def test_salient_pixels_equal_their_loops(way: int):
    rng = torch.Generator().manual_seed(way)
    proto, maps = (torch.randn(way, 6, *size, generator=rng, dtype=torch.float64) for size in ((), (2, 3)))
    torch.testing.assert_close(salient(proto, maps), slow.salient(proto, maps))


@torch.no_grad()
def test_prototypes_move_by_a_tenth_of_the_sigmoid():
    t = double_task()
    states = []
    for shift in (0.0, 0.1):
        method = build(shift=shift)
        support, _ = method.views(t)
        states.append(method.enroll(support, t.support_one_hot))
    plain, shifted = states
    expected = plain.proto + 0.1 * slow.salient(plain.proto, plain.local).sigmoid()
    torch.testing.assert_close(shifted.proto, expected)


def embeddings(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    label = torch.randint(3, (n,), generator=rng)
    return torch.randn(3, 5, generator=rng, dtype=torch.float64)[label] + 0.5 * torch.randn(
        n, 5, generator=rng, dtype=torch.float64
    ), label


@pytest.mark.parametrize(("n", "k"), [(2, 5), (7, 2), (12, 5)])
def test_neighbourhoods_equal_their_loops(n: int, k: int):
    vec, label = embeddings(n)
    assert neighbourhood_loss(vec, label, k).item() == pytest.approx(slow.neighbourhood_loss(vec, label, k), abs=1e-10)


def test_neighbourhoods_with_ties_equal_their_loops():
    vec, label = embeddings(4)
    vec, label = vec.repeat(2, 1), label.repeat(2)  # every image twice
    assert neighbourhood_loss(vec, label, 3).item() == pytest.approx(slow.neighbourhood_loss(vec, label, 3), abs=1e-10)


def test_a_bracket_passes_a_gradient_of_minus_ten_to_the_distance():
    """The loss has the gradient of one in which every bracket is a line of that slope, by differences."""
    vec, label = embeddings(8)
    vec.requires_grad_()
    (gradient,) = torch.autograd.grad(neighbourhood_loss(vec, label, 3), vec)
    here = vec.detach()
    step, found = 1e-6, torch.zeros_like(here)
    for place in [(i, j) for i in range(8) for j in range(5)]:
        moved = []
        for sign in (1, -1):
            there = here.clone()
            there[place] += sign * step
            moved.append(lines(there, here, label, 3))
        found[place] = (moved[0] - moved[1]) / (2 * step)
    torch.testing.assert_close(gradient, found, rtol=1e-5, atol=1e-7)


def lines(vec: torch.Tensor, here: torch.Tensor, label: torch.Tensor, k: int) -> float:
    """The loss at ``vec`` whose brackets are hard at ``here`` and change by -10 per distance from there on."""

    def cosines(x: torch.Tensor) -> torch.Tensor:
        x = x / x.norm(dim=1, keepdim=True)
        return x @ x.mT

    c, c0 = cosines(vec), cosines(here)
    d, d0 = (2 - 2 * c).relu(), (2 - 2 * c0).relu()

    def brackets(k: int) -> tuple[torch.Tensor, torch.Tensor]:
        hard = (d0 <= d0.sort(dim=1).values[:, k - 1 : k] + 0.05).double()
        return hard - 10 * (d - d0), hard.sum(dim=1, keepdim=True)

    (near, rows), (half, _) = brackets(k), brackets(k // 2)
    a = 0.5 * (near @ near.mT / rows + (1 - near) @ (1 - near).mT / (len(vec) - rows).clamp_min(1)) * near
    mutual = half * half.mT
    hard_half = brackets(k // 2)[0] + 10 * (d - d0)
    context = mutual @ a / (hard_half * hard_half.mT).sum(dim=1, keepdim=True)
    context, same = (context + context.mT) / 2, (label[:, None] == label).double()
    off = 1 - torch.eye(len(vec), dtype=torch.float64)
    within, between = (same * (0.75 - c)).relu(), ((1 - same) * (c - 0.6)).relu()
    margin = sum(x.sum() / (x > 0).sum().clamp_min(1) for x in (within, between))
    total = 0.4 * (off * (same - context) ** 2).sum() / len(vec) ** 2 + 0.1 * (c.mean() - 0.25) ** 2 + 0.5 * margin
    return total.item()


def test_without_its_own_parts_it_is_gel_without_calibration():
    t, own = double_task(), build(shift=0.0, similarity_weight=0.0)
    torch.manual_seed(0)
    gel = GEL(DIM, temperature=9.0).double().eval()
    gel.calibrate = None
    gel.load_state_dict(own.state_dict())
    assert torch.equal(own(t).logits, gel(t).logits)
    assert torch.equal(own(t).open_score, gel(t).open_score)
    assert {k: v.item() for k, v in own.loss(t).items()} == {k: v.item() for k, v in gel.loss(t).items()}


def test_the_third_loss_sees_the_unknown_classes_and_their_support():
    method, t = build(), double_task()
    images = torch.cat([t.support, t.query, t.mirror_support]).mean(dim=(2, 3))
    unknown = 3 + t.mirror_query_label
    label = torch.cat([t.support_label, torch.where(t.known, t.query_label, unknown), 3 + t.mirror_support_label])
    found = method.loss(t)["similarity"].item()
    assert found == pytest.approx(0.7 * slow.neighbourhood_loss(images, label, 5), abs=1e-10)
    alone = replace(t, mirror_support=None, mirror_support_label=None, mirror_query_label=None)
    kept = torch.cat([t.support, t.query[t.known]]).mean(dim=(2, 3))
    of_known = torch.cat([t.support_label, t.query_label[t.known]])
    expected = 0.7 * slow.neighbourhood_loss(kept, of_known, 5)
    assert method.loss(alone)["similarity"].item() == pytest.approx(expected, abs=1e-10)
