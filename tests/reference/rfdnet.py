"""Slow twin of RFDNet: one query and one class at a time, each query displaced anew for each class."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glocal.research.methods.rfdnet import RFDNet
from reference.feat import pooled
from reference.similarity import class_mean


def unit(x: Tensor) -> Tensor:
    return x / math.sqrt(sum(float(v) ** 2 for v in x))


def cos(a: Tensor, b: Tensor) -> float:
    return float(unit(a) @ unit(b))


@torch.no_grad()
def recall(method: RFDNet, z: Tensor, hidden: tuple[int, ...]) -> Tensor:
    """D(z): Σ_b softmax_b(s_att cos(z, k_b)) w_b / ||w_b|| over the base classes that are not hidden."""
    seen = [b for b in range(len(method.key.rows)) if b not in hidden]
    weight = [math.exp(float(method.attention_scale) * cos(z, method.key.rows[b])) for b in seen]
    return sum(w / sum(weight) * unit(method.centre.rows[b]) for w, b in zip(weight, seen, strict=True))


@torch.no_grad()
def logits(method: RFDNet, support: Tensor, label: Tensor, query: Tensor, hidden: tuple[int, ...] = ()) -> Tensor:
    """support (S, C, H, W), query (Q, C, H, W) -> (Q, N)."""
    proto = class_mean(torch.stack([unit(x) for x in pooled(support)]), label)
    first, second = method.relate
    rows = []
    for q in (unit(x) for x in pooled(query)):
        row = []
        for n, p in enumerate(proto):
            others = [(p - other).abs() for m, other in enumerate(proto) if m != n]
            g = second.weight @ (first.weight @ (sum(others) / len(others)) + first.bias) + second.bias
            moved_p = p + g * recall(method, p, hidden)
            moved_q = q + g * recall(method, q, hidden)
            row.append(float(method.scale) * (float(method.bias) + cos(moved_q, moved_p)))
        rows.append(row)
    return torch.tensor(rows, dtype=query.dtype)


def margins(logits: Tensor, label: Tensor, margin: float) -> tuple[float, float]:
    """mean relu(margin - s_y) of the known queries, mean relu(s_n + margin) of the unknown ones; 0 of an empty side."""
    known = [max(0.0, margin - float(row[y])) for row, y in zip(logits, label, strict=True) if y >= 0]
    unknown = [max(0.0, float(s) + margin) for row, y in zip(logits, label, strict=True) if y < 0 for s in row]
    return sum(known) / max(1, len(known)), sum(unknown) / max(1, len(unknown))
