"""The picture itself as its own feature: the raw-pixel row that a trained backbone has to beat."""

from __future__ import annotations

from torch import Tensor

from glocal.backbones.base import Backbone
from glocal.types import Preprocess
from glocal_runtime.errors import DataError


class Pixels(Backbone):
    """No weights.  A vector is a 1x1 map: (B, 3, size, size) -> (B, 3 * size * size, 1, 1), values 0..1."""

    def __init__(self, *, image_size: int):
        super().__init__()
        self.preprocess = Preprocess(image_size, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
        self.stage_channels = (3 * image_size * image_size,)

    def stages_of(self, images: Tensor) -> list[Tensor]:
        size = self.preprocess.size
        if images.shape[2:] != (size, size):
            raise DataError(
                f"Pixels was built for {size}x{size} images, got {tuple(images.shape)}; "
                "apply its preprocess first, or build it with the other image_size"
            )
        return [images.flatten(1)[:, :, None, None]]
