"""Slow twin of the learned open prototype: a softmax over N + 1 similarities, query by query."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glocal.research.methods.open_prototype import OpenPrototype
from reference.feat import pooled
from reference.similarity import class_mean, similarity


@torch.no_grad()
def logits(method: OpenPrototype, support: Tensor, label: Tensor, query: Tensor) -> Tensor:
    """support (S, C, H, W), query (Q, C, H, W) -> (Q, N + 1), the open prototype last."""
    proto = [*class_mean(pooled(support), label), method.open]
    factor = 1.0 if method.sharpness is None else math.exp(method.sharpness)
    offset = 0.0 if method.offset is None else float(method.offset)
    out = similarity(pooled(query), torch.stack(proto), method.distance)
    for row in out:
        for n in range(len(proto)):
            row[n] = row[n] / method.temperature * factor + (offset if n == len(proto) - 1 else 0.0)
    return out


def p_open(logits: Tensor) -> Tensor:
    """(Q, N + 1) -> (Q,) probability of the last."""
    rows = [[math.exp(s) for s in row] for row in logits.tolist()]
    return torch.tensor([row[-1] / sum(row) for row in rows], dtype=logits.dtype)
