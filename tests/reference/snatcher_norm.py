"""Slow twins of the normalisations of SnaTCHer-T and SnaTCHer-L: number by number, from the formulas."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glocal.research.methods.snatcher_norm import SnaTCHerL, SnaTCHerT


def moments(values: list[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, sum((v - mean) ** 2 for v in values) / len(values)


@torch.no_grad()
def layer_task_norm(method: SnaTCHerL, stack: Tensor) -> Tensor:
    """One mean and variance over all numbers of the stack (N, D)."""
    mean, variance = moments(stack.flatten().tolist())
    out = torch.zeros_like(stack)
    for n, row in enumerate(stack.tolist()):
        for d, x in enumerate(row):
            out[n, d] = (x - mean) / math.sqrt(variance + 1e-5) * method.gain[d] + method.shift[d]
    return out


@torch.no_grad()
def task_norm(method: SnaTCHerT, stack: Tensor, n_support: int) -> Tensor:
    """Per number: the moments of its channel over the task blended with those of its row."""
    a = 1 / (1 + math.exp(-(float(method.trust_slope) * n_support + float(method.trust_offset))))
    out = torch.zeros_like(stack)
    for n, row in enumerate(stack.tolist()):
        mean_l, variance_l = moments(row)
        for d, x in enumerate(row):
            mean_t, variance_t = moments(stack[:, d].tolist())
            mean = a * mean_t + (1 - a) * mean_l
            variance = a * (variance_t + (mean_t - mean) ** 2) + (1 - a) * (variance_l + (mean_l - mean) ** 2)
            out[n, d] = (x - mean) / math.sqrt(variance + 1e-5) * method.gain[d] + method.shift[d]
    return out
