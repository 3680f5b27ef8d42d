"""Slow twin of FEAT: attention row by row, the regulariser class by class."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glocal.research.methods.blocks import SetAttention
from glocal.research.methods.feat import FEAT
from reference.similarity import class_mean, neg_sq_euclidean


@torch.no_grad()
def attend(layer: SetAttention, rows: Tensor) -> Tensor:
    """LN(x + W_o Σ_j softmax_j(W_q x · W_k x_j / √D) W_v x_j + b), one row after the other, without dropout."""
    w_q, w_k, w_v = layer.w_qs.weight, layer.w_ks.weight, layer.w_vs.weight
    out = []
    for x in rows:
        affinity = [math.exp(float((w_q @ x) @ (w_k @ other)) / math.sqrt(len(x))) for other in rows]
        mixed = sum(a / sum(affinity) * (w_v @ other) for a, other in zip(affinity, rows, strict=True))
        y = x + layer.fc.weight @ mixed + layer.fc.bias
        mean = y.mean()
        variance = ((y - mean) ** 2).mean()
        out.append((y - mean) / torch.sqrt(variance + layer.layer_norm.eps) * layer.layer_norm.weight
                   + layer.layer_norm.bias)  # fmt: skip
    return torch.stack(out)


def cross_entropy(logits: Tensor, label: Tensor) -> float:
    """Mean of -log softmax over the rows whose label is not -1."""
    known = [(row.tolist(), int(y)) for row, y in zip(logits, label, strict=True) if y >= 0]
    losses = [math.log(sum(math.exp(s) for s in row)) - row[y] for row, y in known]
    return sum(losses) / len(losses)


def pooled(maps: Tensor) -> Tensor:
    return maps.flatten(2).sum(-1) / maps[0, 0].numel()


@torch.no_grad()
def logits(method: FEAT, support: Tensor, label: Tensor, query: Tensor) -> Tensor:
    """support (S, C, H, W), query (Q, C, H, W) -> (Q, N)."""
    proto = attend(method.attend, class_mean(pooled(support), label))
    return neg_sq_euclidean(pooled(query), proto) / method.temperature


@torch.no_grad()
def contrast(method: FEAT, support: Tensor, support_label: Tensor, query: Tensor, query_label: Tensor) -> float:
    """CE_reg: each class attends over its own support and query embeddings; their mean classifies all of them."""
    x = torch.cat([pooled(support), pooled(query)[query_label >= 0]])
    label = torch.cat([support_label, query_label[query_label >= 0]])
    centres = [attend(method.attend, x[label == n]).mean(0) for n in range(int(support_label.max()) + 1)]
    return cross_entropy(neg_sq_euclidean(x, torch.stack(centres)) / method.contrast_temperature, label)
