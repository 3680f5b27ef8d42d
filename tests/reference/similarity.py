"""Slow twins of glocal.research.ops.similarity: the paper's Algorithm 1 as printed, and plain loops."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class PixelSimilarity(nn.Module):
    """Algorithm 1 of the GEL paper, line by line (``self.topk`` there is ``self.top_k``)."""

    def __init__(self, top_k: int, temp: float):
        super().__init__()
        self.top_k = top_k
        self.temperature = temp
        self.cos = nn.CosineSimilarity(dim=3)

    def forward(self, f_query: Tensor, f_proto: Tensor) -> Tensor:
        """f_query (2NQ, 1, P, dim/2, 1), f_proto (1, N, 1, dim/2, P) -> (2NQ, N)."""
        # cosine similarity
        sim = self.cos(f_query, f_proto)

        # topk
        sim = sim.topk(self.top_k, dim=3).values
        sim = sim.sum(dim=[2, 3])
        return sim / self.temperature


def algorithm_1(query: Tensor, class_map: Tensor, top_k: int) -> Tensor:
    """Algorithm 1 with T = k on maps (Q, C, H, W) and (N, C, H, W)."""
    f_query = query.flatten(2).mT[:, None, :, :, None]
    f_proto = class_map.flatten(2)[None, :, None]
    return PixelSimilarity(top_k, temp=top_k)(f_query, f_proto)


def pixel_loops(query: Tensor, class_map: Tensor, top_k: int) -> Tensor:
    """Eq. 9 pixel by pixel."""
    out = torch.zeros(len(query), len(class_map), dtype=query.dtype)
    for i, q_map in enumerate(query.flatten(2)):
        for n, c_map in enumerate(class_map.flatten(2)):
            total = 0.0
            for u in q_map.T:
                cosines = [float(u @ v) / (math.dist(u, 0 * u) * math.dist(v, 0 * v)) for v in c_map.T]
                total += sum(sorted(cosines)[-top_k:])
            out[i, n] = total / top_k
    return out


def sq_euclidean(q: Tensor, p: Tensor) -> float:
    return sum((float(a) - float(b)) ** 2 for a, b in zip(q, p, strict=True))


def neg_sq_euclidean(query: Tensor, proto: Tensor) -> Tensor:
    return torch.tensor([[-sq_euclidean(q, p) for p in proto] for q in query], dtype=query.dtype)


def class_mean(x: Tensor, label: Tensor) -> Tensor:
    """Mean of each class, one class at a time."""
    return torch.stack([sum(row for row, y in zip(x, label, strict=True) if y == n) / (label == n).sum()
                        for n in range(int(label.max()) + 1)])  # fmt: skip


def similarity(query: Tensor, proto: Tensor, distance: str) -> Tensor:
    rows = []
    for q in query:
        row = []
        for p in proto:
            d2 = sq_euclidean(q, p)
            cos = float(q @ p) / (math.dist(q, 0 * q) * math.dist(p, 0 * p))
            row.append({"sq-euclidean": -d2, "euclidean": -math.sqrt(d2), "cosine": cos}[distance])
        rows.append(row)
    return torch.tensor(rows, dtype=query.dtype)
