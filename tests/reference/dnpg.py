"""Slow twin of DNPG: one class, one base row and one negative at a time, in evaluation mode but for the hidden rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glocal.research.methods.dnpg import DNPG, BaseFit
from glocal.research.types import Episode
from reference.att import cos
from reference.feat import pooled
from reference.similarity import class_mean


@torch.no_grad()
def task(method: DNPG, episode: Episode, hidden: tuple[int, ...] = ()) -> tuple[list[Tensor], list[Tensor]]:
    """p_n and r_n."""
    weight = {name: layer.weight for name, layer in method.attention.items()}
    shown = [b for b in range(len(method.like.rows)) if b not in hidden]
    p, r = [], []
    for s in class_mean(pooled(episode.support), episode.support_label):
        looks = [
            math.exp(float((weight["query"] @ s) @ (weight["key"] @ method.like.rows[b])) / math.sqrt(len(s)))
            for b in shown
        ]
        like = sum(a / sum(looks) * (weight["value"] @ method.like.rows[b]) for a, b in zip(looks, shown, strict=True))
        unlike = sum(
            a / sum(looks) * (weight["unlike_value"] @ method.unlike.rows[b]) for a, b in zip(looks, shown, strict=True)
        )
        p.append(s + weight["out"] @ like)
        r.append(weight["unlike_out"] @ unlike)
    return p, r


@torch.no_grad()
def negatives(method: DNPG, r: list[Tensor]) -> list[Tensor]:
    found = []
    for mlp in method.generate:
        inside = mlp[0].weight @ (sum(r) / len(r)) + mlp[0].bias
        found.append(mlp[3].weight @ torch.where(inside > 0, inside, 0.5 * inside) + mlp[3].bias)
    return found


@torch.no_grad()
def similarities(method: DNPG, episode: Episode, hidden: tuple[int, ...] = ()) -> list[list[float]]:
    p, r = task(method, episode, hidden)
    t1, t2, _ = method.scales.tolist()
    m = negatives(method, r)
    return [
        [*(t1 * cos(q, x) for x in p), max(t2 * cos(q, x) for x in m) + float(method.offset)]
        for q in pooled(episode.query)
    ]


@torch.no_grad()
def side(method: DNPG, episode: Episode, hidden: tuple[int, ...] = ()) -> tuple[float, float]:
    """Cross-entropy over N + 1 and binary cross-entropy of the r_n."""
    p, r = task(method, episode, hidden)
    classes, away = [], []
    rows = similarities(method, episode, hidden)
    for q, row, y in zip(pooled(episode.query), rows, episode.query_label.tolist(), strict=True):
        classes.append(math.log(sum(math.exp(v) for v in row)) - row[len(p) if y < 0 else y])
        for n, unlike in enumerate(r):
            chance = 1 / (1 + math.exp(-(1 - float(method.scales[2]) * cos(q, unlike))))
            away.append(-math.log(chance) if y == n else -math.log(1 - chance))
    return sum(classes) / len(classes), sum(away) / len(away)


@torch.no_grad()
def alignment(method: DNPG, episode: Episode, hidden: tuple[int, ...] = ()) -> float:
    total = 0.0
    for one, other in ((episode, episode.mirrored()), (episode.mirrored(), episode)):
        p, m = task(method, one, hidden)[0], negatives(method, task(method, other, hidden)[1])
        total += sum(max(cos(a, x) for x in p) for a in m) / len(m)
        total += sum(max(cos(x, a) for a in m) for x in p) / len(p)
    return -total / 2


@torch.no_grad()
def fit_loss(fit: BaseFit, x: Tensor, label: Tensor) -> float:
    total = 0.0
    for row, y in zip(x, label.tolist(), strict=True):
        near = [float(((row - c) ** 2).mean()) for c in fit.like]
        far = [sum(float(((row - a) ** 2).mean()) for a in rows) / len(rows) for rows in fit.unlike]
        total += math.log(sum(math.exp(-d / 0.07) for d in near)) + near[y] / 0.07 + 0.05 * near[y]
        total += math.log(sum(math.exp(d / 0.07) for d in far)) - far[y] / 0.07
        total += 0.1 * (far[y] - float(fit.radius)) ** 2
    return total / len(x)
