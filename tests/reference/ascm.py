"""Slow twin of ASCM's own parts: pixel by pixel, pair by pair."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reference.att import cos


def salient(proto: Tensor, class_map: Tensor) -> Tensor:
    """Σ_m w_nm F_n[u_nm] of every class."""
    pixels = [[x.flatten(1)[:, u] for u in range(x[0].numel())] for x in class_map]
    rows = []
    for n, own in enumerate(pixels):
        weight = [math.exp(cos(proto[n], other)) for other in proto]
        mixed = torch.zeros_like(proto[0])
        for m, others in enumerate(pixels):
            whole = sum(others)
            best = max(range(len(own)), key=lambda u, own=own, whole=whole: float(own[u] @ whole))
            mixed += weight[m] / sum(weight) * own[best]
        rows.append(mixed)
    return torch.stack(rows)


def neighbours(d: list[list[float]], k: int) -> list[list[int]]:
    return [[int(x <= sorted(row)[min(k, len(row)) - 1] + 0.05) for x in row] for row in d]


def neighbourhood_loss(vec: Tensor, label: Tensor, k: int) -> float:
    b = range(len(vec))
    c = [[cos(vec[i], vec[j]) for j in b] for i in b]
    d = [[max(0.0, 2 - 2 * x) for x in row] for row in c]
    near, half = neighbours(d, k), neighbours(d, k // 2)
    a = [[0.0 for _ in b] for _ in b]
    for i in b:
        for j in b:
            shared = sum(near[i][l] * near[j][l] for l in b) / sum(near[i])
            absent = sum((1 - near[i][l]) * (1 - near[j][l]) for l in b) / max(1, sum(1 - x for x in near[i]))
            a[i][j] = (shared + absent) / 2 * near[i][j]
    mutual = [[half[i][j] * half[j][i] for j in b] for i in b]
    context = [[sum(mutual[i][l] * a[l][j] for l in b) / sum(mutual[i]) for j in b] for i in b]
    shape, within, between = 0.0, [], []
    for i in b:
        for j in b:
            same, j_ij = label[i] == label[j], (context[i][j] + context[j][i]) / 2
            if i != j:
                shape += (1 - j_ij) ** 2 if same else j_ij**2
            over = 0.75 - c[i][j] if same else c[i][j] - 0.6
            if over > 0:
                (within if same else between).append(over)
    mean = sum(map(sum, c)) / len(vec) ** 2
    margin = sum(within) / max(1, len(within)) + sum(between) / max(1, len(between))
    return 0.4 * shape / len(vec) ** 2 + 0.1 * (mean - 0.25) ** 2 + 0.5 * margin
