"""Slow twin of OSLO: one query, one class and one coordinate sum at a time, from the formulas."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def unit(x: Tensor) -> Tensor:
    return x / math.sqrt(float((x * x).sum()))


def scores(
    support: Tensor, label: Tensor, query: Tensor, *, steps: int, inlier: float, assignment: float
) -> tuple[Tensor, Tensor]:
    """support (S, D), label (S,), query (Q, D) -> cosines (Q, N) with the last prototypes, 1 - ξ (Q,)."""
    n_way = int(label.max()) + 1
    mean = (support.sum(0) + query.sum(0)) / (len(support) + len(query))
    known = [(unit(x - mean), int(y)) for x, y in zip(support, label, strict=True)]
    asked = [unit(x - mean) for x in query]
    proto = []
    for n in range(n_way):
        own = [x for x, y in known if y == n]
        proto.append(torch.stack(own).sum(0) / len(own))
    z = [[1 / n_way] * n_way for _ in asked]
    xi = [0.0 for _ in asked]
    for _ in range(steps):
        for i, x in enumerate(asked):
            cos = [float(x @ unit(p)) for p in proto]
            xi[i] = 1 / (1 + math.exp(-sum(a * c for a, c in zip(z[i], cos, strict=True)) / inlier))
            e = [math.exp(xi[i] * c / assignment) for c in cos]
            z[i] = [a / sum(e) for a in e]
        for n in range(n_way):
            weighed = [(1.0, x) for x, y in known if y == n] + [(xi[i] * z[i][n], x) for i, x in enumerate(asked)]
            proto[n] = sum(w * x for w, x in weighed) / sum(w for w, _ in weighed)
    cosines = torch.tensor([[float(x @ unit(p)) for p in proto] for x in asked], dtype=torch.float64)
    return cosines, torch.tensor([1 - a for a in xi], dtype=torch.float64)
