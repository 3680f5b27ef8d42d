"""Conv-4 (Vinyals et al. 2016), the small backbone of the first few-shot papers: 84 px -> 5x5, 32 px -> 2x2."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from glocal.common.errors import RecipeError
from glocal.research.backbones.base import Backbone, check_image_size
from glocal.research.ops.batch_norm import BatchNorm2d
from glocal.research.types import IMAGENET_MEAN, IMAGENET_STD, Preprocess


class Conv4(Backbone):
    """Four times conv3x3, BN, ReLU, 2x2 max-pool.  Width 64 makes 113,088 parameters.

    ``flat`` gives all numbers of the last map as a vector (a 1x1 map), as the first prototypical networks used it.

    Names of the weights: ``layer{1-4}.0.*`` (convolution, with bias as published), ``layer{1-4}.1.*`` (batch norm).
    """

    smallest_image = 16

    def __init__(
        self,
        *,
        width: int = 64,
        flat: bool = False,
        image_size: int = 84,
        resize: int | None = None,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
    ):
        super().__init__()
        check_image_size("Conv-4", image_size, self.smallest_image)
        if width < 1:
            raise RecipeError(f"width of Conv-4 must be at least 1 channel, got {width}")
        self.preprocess = Preprocess(image_size, resize, tuple(mean), tuple(std))  # type: ignore[arg-type]
        self.flat, side = flat, image_size // 16
        self.stage_channels = (width, width, width, width * side * side if flat else width)
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            nn.Sequential(nn.Conv2d(inside, width, 3, padding=1), BatchNorm2d(width))
            for inside in (3, width, width, width)
        )

    def stages_of(self, images: Tensor) -> list[Tensor]:
        maps = [images]
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            # ReLU after the pool: the same numbers for less work.
            maps.append(F.relu(F.max_pool2d(layer(maps[-1]), 2), inplace=True))
        if self.flat:
            maps[-1] = maps[-1].flatten(1)[:, :, None, None]
        return maps[1:]

    @property
    def architecture(self) -> str:
        return f"{super().architecture}, flat" if self.flat else super().architecture
