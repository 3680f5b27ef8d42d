"""Pictures that are arrays already."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal_runtime.errors import DataError
from glocal_runtime.images import Pixels, check_side


class ArraySource:
    """uint8 pictures (n, H, W, 3), or grey ones (n, H, W) or (n, H, W, 1), in memory or memory-mapped."""

    def __init__(self, images: NDArray[Any]) -> None:
        grey = images.ndim == 3 or (images.ndim == 4 and images.shape[3] == 1)
        if images.dtype != np.uint8 or not (grey or (images.ndim == 4 and images.shape[3] == 3)):
            raise DataError(
                f"images must be uint8 of shape (n, H, W, 3), or (n, H, W) for grey, got {images.dtype} "
                f"{images.shape}; convert with (255 * x).astype('uint8') and put the channels last"
            )
        if len(images):
            check_side(images.shape[1], images.shape[2], "images[0]")
        self._images = images
        self._grey = grey

    def __len__(self) -> int:
        return len(self._images)

    def read(self, i: int) -> Pixels:
        """Pixels (H, W, 3) of picture i, the caller's own to change."""
        image = np.array(self._images[i], order="C", subok=False)
        return np.repeat(image.reshape(*image.shape[:2], 1), 3, axis=2) if self._grey else image

    def where(self, i: int) -> str:
        return f"images[{i}]"

    def stamp(self, i: int) -> str | None:
        return None
