"""Open scores that can be read off any method's logits, (Q, N) -> (Q,), larger = more unknown; GEL's loss on one."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def energy(similarity: Tensor) -> Tensor:
    """-log Σ_n exp(logit_n).  GEL eqs. 13 and 14; larger = less like every known class."""
    return -similarity.logsumexp(dim=-1)


def entropy(logits: Tensor) -> Tensor:
    """-Σ_n p_n log p_n of the softmax.  0 for one class: a single class is never in doubt by this score."""
    log_p = logits.log_softmax(dim=-1)
    return -(log_p.exp() * log_p).sum(dim=-1)


def doubt(logits: Tensor) -> Tensor:
    """1 - max_n p_n of the softmax."""
    return 1 - logits.softmax(dim=-1).amax(dim=-1)


def distance(logits: Tensor) -> Tensor:
    """-max_n logit_n: the smallest distance to a class, when logits are negative distances."""
    return -logits.amax(dim=-1)


def margin(logits: Tensor) -> Tensor:
    """-(best - second best): small when one class stands out.  0 for one class, which has no rival."""
    best = F.pad(logits, (0, 1), value=-math.inf).topk(2, dim=-1).values  # no branch, because a graph has none
    return torch.where(best[..., 1].isinf(), 0, best[..., 1] - best[..., 0])


OPEN_SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "entropy": entropy,
    "doubt": doubt,
    "distance": distance,
    "energy": energy,
    "margin": margin,
}


def energy_margin(e: Tensor, known: Tensor, m_known: float = -1.0, m_unknown: float = 1.0) -> Tensor:
    """Squared hinge that pulls known energies below ``m_known`` and pushes unknown ones above ``m_unknown``.

    mean_known relu(E - M_k)² + mean_unknown relu(M_u - E)²: e (Q,), known (Q,) bool -> ().
    The paper's eq. 10 prints ``max(E - M_u, 0)`` for unknowns and no square, and eq. 11 sums; its Algorithm 2 and the
    released program have the sign, the square and the means written here.  A side without queries counts 0.
    """
    pull = (e[known] - m_known).relu().square()
    push = (m_unknown - e[~known]).relu().square()
    return _mean(pull) + _mean(push)


def _mean(x: Tensor) -> Tensor:
    """Mean that is 0, not NaN, on an empty selection, and still attached to the graph."""
    return x.sum() / max(x.numel(), 1)
