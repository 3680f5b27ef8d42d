"""Is this picture (nearly) that one?  Equal pixels by their hash; nearly equal ones by a small grey signature.

A signature is the picture in 16 x 16 grey cells.  Two pictures are near twins when their signatures correlate: another
size, JPEG quality or brightness leaves that at 0.99 and more, while two photos of one object stay well below.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

from glocal_runtime.images import Pixels

CELLS = 16
NEAR = 0.99  # correlation


def signature(pixels: Pixels) -> Pixels:
    """(H, W, 3) -> (256,) mean grey of each cell."""
    grey = Image.fromarray(pixels).convert("L")
    cells: Pixels = np.asarray(grey.resize((CELLS, CELLS), Image.Resampling.BOX)).reshape(-1)
    return cells


def correlation(some: Pixels, others: Pixels) -> npt.NDArray[np.float32]:
    """Signatures (A, 256) and (B, 256) -> (A, B) in [-1, 1]; pictures of a single grey are like no other."""
    a, b = (_centred(each) for each in (some, others))
    return a @ b.T


def _centred(signatures: Pixels) -> npt.NDArray[np.float32]:
    moved = signatures.astype(np.float32)
    moved -= moved.mean(axis=1, keepdims=True)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True).clip(1e-6)
    return moved


def stacked(signatures: list[Pixels]) -> Pixels:
    """(n, 256)."""
    return np.stack(signatures) if signatures else np.empty((0, CELLS * CELLS), np.uint8)
