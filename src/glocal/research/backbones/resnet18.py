"""ResNet-18 (He et al. 2016), with the ImageNet stem for large pictures and the stem of the few-shot papers for 84 px.

7x7 stem (stride 2, then a 3x3 max-pool of stride 2): 224 px -> 56, 28, 14, 7.
3x3 stem (stride 1, no pool, as RFDNet's ResNet-18): 84 px -> 84, 42, 21, 11.  What brings 11x11 to 6x6 is part of GEL.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from glocal.common.errors import RecipeError
from glocal.research.backbones.base import Backbone
from glocal.research.ops.batch_norm import BatchNorm2d
from glocal.research.types import IMAGENET_MEAN, IMAGENET_STD, Preprocess

WIDTHS = (64, 128, 256, 512)
STEMS = ("7x7", "3x3")
LARGE_IMAGE = 112  # from here on the 7x7 stem, unless told otherwise; below, its maps would be 3x3 or smaller


class BasicBlock(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.bn1 = BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.bn2 = BatchNorm2d(outside)
        self.downsample = nn.Sequential()  # the identity, without an entry in the state dict
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        """(B, inside, H, W) -> (B, outside, ceil(H / stride), ceil(W / stride))."""
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)).add_(self.downsample(x)), inplace=True)


class ResNet18(Backbone):
    """Names of the weights as in torchvision: ``conv1``, ``bn1``, ``layer{1-4}.{0,1}.conv{1,2}`` / ``.bn{1,2}``,
    ``layer{2-4}.0.downsample.{0,1}``.  There is no ``fc``: drop it before loading.

    ``stem``: "7x7" or "3x3"; None chooses by ``image_size``.  ``stages``: [3, 4] packs the map of stage 3 behind the
    last one (``ops.packing``), which is half as wide; None gives the last alone.
    """

    def __init__(
        self,
        *,
        image_size: int = 84,
        stem: str | None = None,
        resize: int | None = None,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        stages: Sequence[int] | None = None,
    ):
        super().__init__()
        if stem is None:
            stem = "7x7" if image_size >= LARGE_IMAGE else "3x3"
        if stem not in STEMS:
            raise RecipeError(f"stem of ResNet-18 must be one of {', '.join(STEMS)}, got {stem!r}")
        self.preprocess = Preprocess(image_size, resize, tuple(mean), tuple(std))  # type: ignore[arg-type]
        self.large_stem = stem == "7x7"
        kernel, stride = (7, 2) if self.large_stem else (3, 1)
        self.conv1 = nn.Conv2d(3, 64, kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = BatchNorm2d(64)
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            nn.Sequential(BasicBlock(inside, outside, 1 if inside == outside else 2), BasicBlock(outside, outside, 1))
            for inside, outside in zip((64, *WIDTHS[:-1]), WIDTHS, strict=True)
        )
        self.stage_channels = WIDTHS
        halvings = 2 if self.large_stem else 0  # before stage 1, which keeps the side
        self.hand_out(stages, sides=[-(-image_size // 2 ** (halvings + n)) for n in range(len(self.stage_channels))])
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def stages_of(self, images: Tensor) -> list[Tensor]:
        x = self.bn1(self.conv1(images))
        maps = [F.relu(F.max_pool2d(x, 3, 2, padding=1) if self.large_stem else x, inplace=True)]
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            maps.append(layer(maps[-1]))
        return maps[1:]
