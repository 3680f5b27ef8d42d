"""DropBlock as loops over cells, from the paper's Algorithm 1 and Equation 1."""

from __future__ import annotations

import torch
from torch import Tensor


def drop_blocks(maps: Tensor, *, block_size: int, keep: float) -> Tensor:
    """(B, C, H, W): each seed zeroes the block whose top left cell it is; the rest is scaled by numel / kept."""
    images, channels, height, width = maps.shape
    rows, columns = height - block_size + 1, width - block_size + 1
    gamma = (1 - keep) / block_size**2 * (height * width) / (rows * columns)
    draw = torch.rand(images, channels, rows, columns)
    out, dropped = maps.clone(), set()
    for i in range(images):
        for c in range(channels):
            for top in range(rows):
                for left in range(columns):
                    if draw[i, c, top, left] >= gamma:
                        continue
                    for y in range(top, top + block_size):
                        for x in range(left, left + block_size):
                            out[i, c, y, x] = 0
                            dropped.add((i, c, y, x))
    kept = maps.numel() - len(dropped)
    return out * (maps.numel() / kept) if kept else out
