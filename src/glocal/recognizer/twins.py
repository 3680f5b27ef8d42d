"""Is this picture (nearly) that one?  Equal pixels by their hash; nearly equal ones by a small grey signature.

A signature is the picture in 16 x 16 grey cells.  Two pictures are near twins when their signatures correlate: another
size, JPEG quality or brightness leaves that at 0.99 and more, while two photos of one object stay well below.
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from glocal.data.images import Pixels

CELLS = 16
NEAR = 0.99  # correlation


def signature(pixels: Pixels) -> Pixels:
    """(H, W, 3) -> (256,) mean grey of each cell."""
    grey = Image.fromarray(pixels).convert("L")
    cells: Pixels = np.asarray(grey.resize((CELLS, CELLS), Image.Resampling.BOX)).reshape(-1)
    return cells


def correlation(some: Tensor, others: Tensor) -> Tensor:
    """Signatures (A, 256) and (B, 256) -> (A, B) in [-1, 1]; pictures of a single grey are like no other."""
    a, b = (_centred(each) for each in (some, others))
    return a @ b.mT


def _centred(signatures: Tensor) -> Tensor:
    moved = signatures.float() - signatures.float().mean(dim=1, keepdim=True)
    return moved / moved.norm(dim=1, keepdim=True).clamp_min(1e-6)


def stacked(signatures: list[Pixels]) -> Tensor:
    """(n, 256) uint8."""
    if not signatures:
        return torch.empty(0, CELLS * CELLS, dtype=torch.uint8)
    return torch.from_numpy(np.stack(signatures))
