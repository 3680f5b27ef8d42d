"""Rows in turns, so that memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def in_turns(work: Callable[..., Tensor], *rows: Tensor, step: Callable[[], int], dim: int = 0) -> Tensor:
    """``work(*rows)`` on at most ``step()`` rows at a time, joined along ``dim``.

    A traced graph works on all rows at once.

    >>> in_turns(lambda x: x - x.mean(), torch.arange(4.0), step=lambda: 2)
    tensor([-0.5000,  0.5000, -0.5000,  0.5000])
    """
    if torch.compiler.is_exporting():  # a graph has one shape of work; whoever runs it hands it rows in turns
        return work(*rows)
    parts = (torch.split(each, max(1, step())) for each in rows)
    return torch.cat([work(*part) for part in zip(*parts, strict=True)], dim=dim)
