"""Slow twin of Mahalanobis++: covariances as sums of outer products, one linear system per query and class."""

from __future__ import annotations

import torch
from torch import Tensor

from reference.feat import pooled


def unit(x: Tensor, normalise: bool) -> Tensor:
    return x.double() / x.double().square().sum().sqrt() if normalise else x.double()


def covariances(vec: Tensor, label: Tensor, shrinkage: float, normalise: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Base embeddings (I, D), labels (I,) -> within classes, over all, and the mean of all."""
    z = [unit(x, normalise) for x in vec]
    n, dim = len(z), vec.shape[1]
    mean = sum(z) / n
    within, between = torch.zeros(dim, dim, dtype=torch.float64), torch.zeros(dim, dim, dtype=torch.float64)
    for b in range(int(label.max()) + 1):
        own = [x for x, y in zip(z, label.tolist(), strict=True) if y == b]
        centre = sum(own) / len(own)
        for x in own:
            within += torch.outer(x - centre, x - centre) / n
        between += len(own) / n * torch.outer(centre - mean, centre - mean)

    def shrunk(s: Tensor) -> Tensor:
        return (1 - shrinkage) * s + shrinkage * sum(s[i, i] for i in range(dim)) / dim * torch.eye(dim, dtype=s.dtype)

    return shrunk(within), shrunk(within + between), mean


def distances(
    base: tuple[Tensor, Tensor], support: Tensor, label: Tensor, query: Tensor, *, shrinkage: float, normalise: bool,
    correct_shots: bool,
) -> tuple[list[list[float]], list[float]]:  # fmt: skip
    """d_n (Q, N) and d_0 (Q,) of maps."""
    within, total, mean = covariances(*base, shrinkage, normalise)
    z = [unit(x, normalise) for x in pooled(support)]
    of_classes, of_all = [], []
    for q in (unit(x, normalise) for x in pooled(query)):
        row = []
        for n in range(int(label.max()) + 1):
            own = [x for x, y in zip(z, label.tolist(), strict=True) if y == n]
            away = q - sum(own) / len(own)
            widened = 1 + 1 / len(own) if correct_shots else 1
            row.append(float(away @ torch.linalg.solve(within, away)) / widened)
        of_classes.append(row)
        of_all.append(float((q - mean) @ torch.linalg.solve(total, q - mean)))
    return of_classes, of_all
