"""Slow twins of open_scores: the paper's Algorithm 2 as printed, and the same for any set of queries."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class EnergyLoss(nn.Module):
    """Algorithm 2 of the GEL paper, line by line: known queries first, then the unknown ones."""

    def __init__(self, m_k: float, m_u: float, sizes: int | list[int]):
        super().__init__()
        self.m_k = m_k
        self.m_u = m_u
        self.NQ = sizes

    def forward(self, e_sim: Tensor, f_sim: Tensor) -> Tensor:
        # energy score
        e_egy = -torch.logsumexp(e_sim, dim=1)
        f_egy = -torch.logsumexp(f_sim, dim=1)
        energy = e_egy + f_egy

        # energy loss
        k_egy, u_egy = torch.split(energy, self.NQ)
        l_k = pow(F.relu(k_egy - self.m_k), 2)
        l_u = pow(F.relu(self.m_u - u_egy), 2)
        return l_k.mean() + l_u.mean()


def energy(similarities: list[float]) -> float:
    """Eq. 13, without the shift that keeps it stable."""
    return -math.log(sum(math.exp(s) for s in similarities))


def energy_margin(energies: list[float], known: list[bool], m_known: float, m_unknown: float) -> float:
    pull = [max(0.0, e - m_known) ** 2 for e, k in zip(energies, known, strict=True) if k]
    push = [max(0.0, m_unknown - e) ** 2 for e, k in zip(energies, known, strict=True) if not k]
    return sum(pull) / max(len(pull), 1) + sum(push) / max(len(push), 1)
