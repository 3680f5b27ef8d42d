"""A map in fewer, larger pixels: the mean of what each cell of a coarser grid covers.

The same sums as ``adaptive_avg_pool2d``, written as a matrix product, because an exported graph has no such layer for
grids that do not divide the map.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


def cells(maps: Tensor, side: int) -> Tensor:
    """(B, C, H, W) -> (B, C, side, side); H and W are at least ``side``.

    >>> cells(torch.arange(9.0).view(1, 1, 3, 3), 2)
    tensor([[[[2., 3.],
              [5., 6.]]]])
    """
    rows, columns = (_shares(n, side).to(maps) for n in maps.shape[-2:])
    return rows @ maps @ columns.mT


@cache
def _shares(n: int, side: int) -> Tensor:
    """(side, n): what each of ``n`` pixels in a row contributes to each cell."""
    with torch.inference_mode(False):  # kept, so it must serve training too
        table = torch.zeros(side, n)
        for i in range(side):
            first, end = i * n // side, -(-(i + 1) * n // side)
            table[i, first:end] = 1 / (end - first)
    return table
