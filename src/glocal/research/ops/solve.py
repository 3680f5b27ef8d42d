"""Ridge regression in closed form."""

from __future__ import annotations

import torch
from torch import Tensor

STEPS = 24  # of Newton's method: enough for condition numbers of 10,000


def solve(kernel: Tensor, target: Tensor, ridge: Tensor) -> Tensor:
    """(K + diag(r))^-1 Y: kernel (S, S), symmetric and not below 0 by more than r, target (S, N), ridge (S,) -> (S, N).

    An exported graph has no layer that solves; there Newton's method finds the inverse by matrix products alone, and
    one more step on the result takes away what rounding has left.
    """
    matrix = kernel + torch.diag_embed(ridge)
    if not torch.compiler.is_exporting():
        return torch.linalg.solve(matrix.double(), target.double()).to(target.dtype)
    return newton_solve(matrix, target)


def newton_solve(matrix: Tensor, target: Tensor) -> Tensor:
    """X <- X (2 I - A X), which squares the error; begun with I / max row sum, so that no eigenvalue passes 1."""
    eye = torch.eye(matrix.shape[0], dtype=matrix.dtype, device=matrix.device)
    inverse = eye / matrix.abs().sum(dim=1).max()
    for _ in range(STEPS):
        inverse = inverse @ (2 * eye - matrix @ inverse)
    found = inverse @ target
    return found + inverse @ (target - matrix @ found)
