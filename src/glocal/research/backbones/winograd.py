r"""3x3 convolutions with a quarter of the multiplications (Lavin & Gray 2016, Winograd's F(4x4, 3x3)).

Each 4x4 square of the output depends on the 6x6 square of the input around it.  Seen as values of polynomials at six
points a side, the convolution of such a square is a product point by point, 36 numbers instead of 16 x 9:

.. math:: Y = A^T \, [\, (G g G^T) \odot (B^T d B) \,] \, A

Summed over channels that is one matrix product per point.  The gradients are the same sums transposed.  In float32 the
result differs from the direct sum by some 1e-5 of its size, which training does not feel.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

TILE = 4  # pixels of the output; its input is 2 wider
POINTS = torch.tensor([
    [4, 0, -5, 0, 1, 0],
    [0, -4, -4, 1, 1, 0],
    [0, 4, -4, -1, 1, 0],
    [0, -2, -1, 2, 1, 0],
    [0, 2, -1, -2, 1, 0],
    [0, 4, 0, -5, 0, 1],
], dtype=torch.double)  # fmt: skip  # B^T
KERNEL = torch.tensor([
    [6, 0, 0],
    [-4, -4, -4],
    [-4, 4, -4],
    [1, 2, 4],
    [1, -2, 4],
    [0, 0, 24],
], dtype=torch.double) / 24  # fmt: skip  # G
SQUARE = torch.tensor([
    [1, 1, 1, 1, 1, 0],
    [0, 1, -1, 2, -2, 0],
    [0, 1, 1, 4, 4, 0],
    [0, 1, -1, 8, -8, 1],
], dtype=torch.double)  # fmt: skip  # A^T


@cache
def both_sides(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The three for a square at once: (36, 36), (36, 9), (16, 36)."""
    points, kernel, square = (torch.kron(m, m).to(dtype) for m in (POINTS, KERNEL, SQUARE))
    return points, kernel, square


def winograd(x: Tensor, weight: Tensor) -> Tensor:
    """(B, C, H, W) and (O, C, 3, 3) -> (B, O, H, W), one pixel of zeros around; the map in channels_last."""
    sums: Tensor = _Winograd.apply(x, weight)  # type: ignore[no-untyped-call]
    return sums


class _Winograd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        outside, inside = weight.shape[:2]
        points, kernel, square = both_sides(x.dtype)
        batch, _, height, width = x.shape
        rows, columns = -(-height // TILE), -(-width // TILE)
        padded = x.new_zeros(batch, rows * TILE + 2, columns * TILE + 2, inside)
        padded[:, 1 : height + 1, 1 : width + 1] = x.permute(0, 2, 3, 1)
        seen = x.new_empty(36, batch, rows, columns, inside)
        for point, part in enumerate(_parts(padded)):
            seen[point] = part
        values = (points @ seen.view(36, -1)).view(36, -1, inside)
        kernels = (kernel @ weight.permute(2, 3, 1, 0).reshape(9, -1)).view(36, inside, outside)
        ctx.save_for_backward(values, kernels)
        ctx.shape = batch, rows, columns, height, width
        sums = square @ torch.bmm(values, kernels).view(36, -1)
        tiles = sums.view(TILE, TILE, batch, rows, columns, outside).permute(2, 3, 0, 4, 1, 5)
        return tiles.reshape(batch, rows * TILE, columns * TILE, outside)[:, :height, :width].permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        values, kernels = ctx.saved_tensors
        points, kernel, square = both_sides(values.dtype)
        batch, rows, columns, height, width = ctx.shape
        inside, outside = kernels.shape[1:]
        whole = values.new_zeros(batch, rows * TILE, columns * TILE, outside)
        whole[:, :height, :width] = gradients[0].permute(0, 2, 3, 1)
        tiles = whole.view(batch, rows, TILE, columns, TILE, outside).permute(2, 4, 0, 1, 3, 5)
        of_sums = (square.T @ tiles.reshape(TILE * TILE, -1)).view(36, -1, outside)
        of_x = of_weight = None
        if ctx.needs_input_grad[1]:
            of_kernels = torch.bmm(values.transpose(1, 2), of_sums)
            of_weight = (kernel.T @ of_kernels.view(36, -1)).view(3, 3, inside, outside).permute(3, 2, 0, 1)
        if ctx.needs_input_grad[0]:
            of_values = torch.bmm(of_sums, kernels.transpose(1, 2))
            of_seen = (points.T @ of_values.view(36, -1)).view(36, batch, rows, columns, inside)
            padded = values.new_zeros(batch, rows * TILE + 2, columns * TILE + 2, inside)
            for point, part in enumerate(_parts(padded)):
                part += of_seen[point]
            of_x = padded[:, 1 : height + 1, 1 : width + 1].permute(0, 3, 1, 2)
        return of_x, of_weight


def _parts(padded: Tensor) -> list[Tensor]:
    """36 views (B, rows, columns, C): pixel (i, j) of the 6x6 square around each tile."""
    rows, columns = (padded.shape[1] - 2), (padded.shape[2] - 2)
    return [padded[:, i : i + rows : TILE, j : j + columns : TILE] for i in range(6) for j in range(6)]
