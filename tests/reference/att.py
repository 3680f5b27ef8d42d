"""Slow twin of ATT and ATT-G: one class looks into the memory at a time, every loss term query by query."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glocal.research.methods.att import ATT, MemoryAttention
from glocal.research.types import Episode
from reference.feat import pooled
from reference.similarity import class_mean


def look(layer: MemoryAttention, x: Tensor, memory: list[Tensor]) -> Tensor:
    """Att(x; M) of one vector, without dropout; a layer that does not look takes M = {x}."""
    if layer.w_qs is None:
        return x + layer.fc.weight @ (layer.w_vs.weight @ x)
    q = layer.w_qs.weight @ x
    affinity = [math.exp(float(q @ (layer.w_ks.weight @ m)) / math.sqrt(len(x))) for m in memory]
    mixed = sum(a / sum(affinity) * (layer.w_vs.weight @ m) for a, m in zip(affinity, memory, strict=True))
    return x + layer.fc.weight @ mixed


@torch.no_grad()
def prototypes(method: ATT, task: Episode, base: Tensor | None, hidden: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """p_n and u_n; the memory is the class means, or the base rows (B, D) that are not hidden."""
    means = class_mean(pooled(task.support), task.support_label)
    memory = list(means) if base is None else [row for b, row in enumerate(base) if b not in hidden]
    p = [look(method.calibrator, s, memory) for s in means]
    return torch.stack(p), torch.stack([look(method.open_generator, x, memory) for x in p])


def cos(a: Tensor, b: Tensor) -> float:
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


@torch.no_grad()
def similarities(
    method: ATT, task: Episode, base: Tensor | None = None, hidden: tuple[int, ...] = ()
) -> list[list[float]]:
    """(Q, N + 1): τ cos with every prototype and with the negative."""
    p, u = prototypes(method, task, base, hidden)
    negative = sum(u) / len(u)
    if isinstance(method.aggregate, torch.nn.Sequential):
        first, last = method.aggregate[0], method.aggregate[3]
        inside = first.weight @ negative + first.bias
        negative = last.weight @ torch.where(inside > 0, inside, 0.5 * inside) + last.bias
    tau = float(method.scale)
    return [[tau * cos(q, x) for x in [*p, negative]] for q in pooled(task.query)]


@torch.no_grad()
def terms(method: ATT, task: Episode, base: Tensor | None = None, hidden: tuple[int, ...] = ()) -> tuple[float, float]:
    """Cross-entropy over N + 1 classes and binary cross-entropy of the negatives, of one side."""
    p, u = prototypes(method, task, base, hidden)
    rows, tau, n = similarities(method, task, base, hidden), float(method.scale), len(p)
    classes, negatives = [], []
    for q, row, y in zip(pooled(task.query), rows, task.query_label.tolist(), strict=True):
        classes.append(math.log(sum(math.exp(s) for s in row)) - row[n if y < 0 else y])
        for k in range(n):
            away = 1 / (1 + math.exp(-(1 - tau * cos(q, u[k]))))
            negatives.append(-math.log(away) if y == k else -math.log(1 - away))
    return sum(classes) / len(classes), sum(negatives) / len(negatives)
