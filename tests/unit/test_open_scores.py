from __future__ import annotations

import math

import pytest
import torch
from torch.autograd import gradcheck

from glocal.research.ops.open_scores import OPEN_SCORES, energy, energy_margin
from reference import energy as slow


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("n_known", "n_unknown"), [(6, 4), (1, 1), (3, 3)])
def test_energies_and_margin_equal_algorithm_2(n_known: int, n_unknown: int):
    e_sim, f_sim = random(n_known + n_unknown, 3), random(n_known + n_unknown, 3, seed=1)
    # Algorithm 2 splits into two halves of NQ; torch.split takes two unequal sizes as well.
    expected = slow.EnergyLoss(-1, 1, [n_known, n_unknown])(e_sim, f_sim)
    known = torch.arange(n_known + n_unknown) < n_known
    order = torch.randperm(len(known), generator=torch.Generator().manual_seed(2))  # a mask, not a position
    found = energy_margin((energy(e_sim) + energy(f_sim))[order], known[order])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("e", "known", "expected"),
    [
        ([-3.0, 3.0], [True, False], 0.0),  # both beyond their margins
        ([3.0, -3.0], [True, False], 32.0),  # both wrong: (3 + 1)² + (1 + 3)²
        ([0.0, 0.0], [True, False], 2.0),
        ([1.0, -1.0, 0.0, 1.0], [True, True, False, False], 2.5),  # (4 + 0) / 2 + (1 + 0) / 2
        ([1.0, 1.0], [True, True], 4.0),  # nobody unknown
        ([-1.0, 0.5], [False, False], 2.125),  # nobody known
        ([], [], 0.0),
    ],
)
def test_margin_by_hand(e: list[float], known: list[bool], expected: float):
    found = energy_margin(torch.tensor(e), torch.tensor(known, dtype=torch.bool))
    assert found.item() == pytest.approx(expected)
    assert slow.energy_margin(e, known, -1, 1) == pytest.approx(expected)
    moved = energy_margin(torch.zeros(2), torch.tensor([True, False]), m_known=-3, m_unknown=0.5)
    assert moved.item() == 9.25


def test_gradient_of_the_margin():
    e = torch.zeros(0, requires_grad=True)
    energy_margin(e, torch.zeros(0, dtype=torch.bool)).backward()
    assert e.grad.shape == (0,), "an empty side stays in the graph"
    e = random(9).requires_grad_()
    known = torch.tensor([True, False, True, True, False, False, False, True, False])
    assert gradcheck(lambda x: energy_margin(x, known), (e,))


@pytest.mark.parametrize("name", OPEN_SCORES)
def test_open_scores_are_larger_for_the_query_in_doubt(name: str):
    sure, doubtful = OPEN_SCORES[name](torch.tensor([[-1.0, -9.0, -9.0], [-5.0, -5.5, -6.0]])).tolist()
    assert doubtful > sure


def test_open_scores_by_hand():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25]]))
    found = {name: score(logits).item() for name, score in OPEN_SCORES.items()}
    assert found == pytest.approx(
        {"entropy": 1.5 * math.log(2), "doubt": 0.5, "distance": math.log(2), "energy": 0.0, "margin": -math.log(2)},
        abs=1e-6,
    )
    # One class has no rival.
    logits = torch.tensor([[-3.0], [2.0]])
    assert OPEN_SCORES["margin"](logits).tolist() == [0.0, 0.0]
    assert OPEN_SCORES["entropy"](logits).abs().tolist() == [0.0, 0.0]
