"""Slow twin of kNN: every distance one coordinate at a time, sorted in a list."""

from __future__ import annotations

import math

from torch import Tensor

from reference.feat import pooled


def unit(x: Tensor) -> list[float]:
    length = math.sqrt(sum(float(v) ** 2 for v in x))
    return [float(v) / length for v in x]


def scores(support: Tensor, label: Tensor, query: Tensor, k: int) -> dict[str, list[float]]:
    """Maps (S, C, H, W), labels (S,), maps (Q, C, H, W) -> every score, one number per query."""
    known = [unit(x) for x in pooled(support)]
    found: dict[str, list[float]] = {"knn": [], "knn_mean": [], "knn_balanced": []}
    for q in (unit(x) for x in pooled(query)):
        away = [math.dist(q, x) for x in known]
        nearest = sorted(away)
        found["knn"].append(nearest[k - 1])
        found["knn_mean"].append(sum(nearest[:k]) / k)
        of_class = []
        for n in range(int(label.max()) + 1):
            own = sorted(d for d, y in zip(away, label.tolist(), strict=True) if y == n)
            of_class.append(own[min(k, len(own)) - 1])
        found["knn_balanced"].append(min(of_class))
    return found


def logits(support: Tensor, label: Tensor, query: Tensor) -> list[list[float]]:
    known, rows = [unit(x) for x in pooled(support)], []
    for q in (unit(x) for x in pooled(query)):
        row = []
        for n in range(int(label.max()) + 1):
            own = [x for x, y in zip(known, label.tolist(), strict=True) if y == n]
            mean = [sum(values) / len(own) for values in zip(*own, strict=True)]
            length = math.sqrt(sum(v * v for v in mean))
            row.append(10 * sum(a * b for a, b in zip(q, mean, strict=True)) / length)
        rows.append(row)
    return rows
