"""Slow twin of SnaTCHer-F: one query at a time, the whole set of prototypes adapted anew for each."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def movement(transform: Callable[[Tensor], Tensor], raw: Tensor, query: Tensor, logits: Tensor) -> Tensor:
    """raw (N, D), query (Q, D), logits (Q, N) -> (Q,)."""
    adapted, scores = transform(raw), []
    for q, row in zip(query, logits, strict=True):
        swapped = raw.clone()
        swapped[int(row.argmax())] = q
        scores.append(((transform(swapped) - adapted) ** 2).sum() / 64)
    return torch.stack(scores)
