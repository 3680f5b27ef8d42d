"""Free energy of a set of similarities, and the loss that parts known from unknown energies."""

from __future__ import annotations

from torch import Tensor


def energy(similarity: Tensor) -> Tensor:
    """E = -log Σ_n exp(s_n): (Q, N) -> (Q,).  Larger = less like every known class.  GEL eqs. 13 and 14."""
    return -similarity.logsumexp(dim=-1)


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
