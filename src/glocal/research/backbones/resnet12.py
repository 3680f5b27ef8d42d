"""ResNet-12, the backbone of the few-shot literature of Oreshkin et al. (2018), with the widths of Lee et al. (2019).

Four residual blocks, each halves the side: 84 px -> 5x5, 64 px -> 4x4, 32 px -> 2x2.
The published widths make 12,424,320 parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glocal.common.errors import RecipeError
from glocal.research.backbones.base import Backbone, check_image_size
from glocal.research.ops.batch_norm import BatchNorm2d
from glocal.research.types import Preprocess

# Of the ResNet-12 of FEAT, SnaTCHer and GEL, to the digits that those programs have; written there as 0..255.
MEAN = (120.39586422 / 255, 115.59361427 / 255, 104.54012653 / 255)
STD = (70.68188272 / 255, 68.27635443 / 255, 72.54505529 / 255)
SLOPE = 0.1  # of every LeakyReLU
SMALL_MAP = 4  # pixels a side
LARGEST_BLOCK = 5  # DropBlock on 84 px; smaller pictures take the side of their last map


class ResidualBlock(nn.Module):
    """3 x (conv3x3, BN) beside a 1x1 shortcut; LeakyReLU after the first, the second and the sum; 2x2 max-pool."""

    def __init__(self, inside: int, outside: int, drop: nn.Module):
        super().__init__()
        self.conv1, self.bn1 = Conv3x3(inside, outside), BatchNorm2d(outside)
        self.conv2, self.bn2 = Conv3x3(outside, outside), BatchNorm2d(outside)
        self.conv3, self.bn3 = Conv3x3(outside, outside), BatchNorm2d(outside)
        self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, bias=False), BatchNorm2d(outside))
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        """(B, inside, H, W) -> (B, outside, H // 2, W // 2)."""
        y = F.leaky_relu(self.bn1(self.conv1(x)), SLOPE, inplace=True)
        y = F.leaky_relu(self.bn2(self.conv2(y)), SLOPE, inplace=True)
        y = self.conv3(y)  # statement by statement: within one expression the old y would live until its end
        y = self.bn3(y)
        y += self.downsample(x)
        # LeakyReLU never changes which value is largest: pooling first gives the same numbers for less work.
        dropped: Tensor = self.drop(F.leaky_relu(F.max_pool2d(y, 2), SLOPE, inplace=True))
        return dropped


class ResNet12(Backbone):
    """Names of the weights: ``layer{1-4}.conv{1-3}.weight`` and ``layer{1-4}.bn{1-3}.*``.  The shortcut has the
    convolution ``layer{1-4}.downsample.0.weight`` and the batch norm ``layer{1-4}.downsample.1.*``.  Published files
    lack only DropBlock's ramp counters ``layer{3,4}.drop.step``.  FEAT, SnaTCHer and GEL write
    ``layer1.0.conv1`` where this has ``layer1.conv1``.

    ``width``: channels of the first block, the others follow as 2.5, 5 and 10 times it; or the four widths themselves.
    ``dropblock_size``: side of a dropped block; None takes the side of the last map, at most 5.
    ``dropblock_steps``: the published ramp; a short run sets a third of its own length.
    ``stages``: [3, 4] packs the map of stage 3 behind the last one (``ops.packing``); None gives the last alone.
    """

    smallest_image = 16

    def __init__(
        self,
        *,
        width: int | Sequence[int] = 64,
        image_size: int = 84,
        resize: int | None = None,
        mean: Sequence[float] = MEAN,
        std: Sequence[float] = STD,
        drop_rate: float = 0.1,
        dropblock_size: int | None = None,
        dropblock_steps: int = 40_000,
        stages: Sequence[int] | None = None,
    ):
        super().__init__()
        check_image_size("ResNet-12", image_size, self.smallest_image)
        side = image_size // 16  # of the last map
        block = min(side, LARGEST_BLOCK) if dropblock_size is None else dropblock_size
        if block > side:
            raise RecipeError(
                f"dropblock_size must be at most {side}, got {block}; {image_size}-pixel images give {side}x{side} maps"
            )
        self.preprocess = Preprocess(image_size, resize, tuple(mean), tuple(std))  # type: ignore[arg-type]
        self.stage_channels = widths_of(width)
        self.hand_out(stages, sides=[image_size // 2**stage for stage in (1, 2, 3, 4)])
        c1, c2, c3, c4 = self.stage_channels
        drop3, drop4 = (DropBlock(block_size=block, drop_rate=drop_rate, steps=dropblock_steps) for _ in range(2))
        self.layer1 = ResidualBlock(3, c1, nn.Dropout(drop_rate))
        self.layer2 = ResidualBlock(c1, c2, nn.Dropout(drop_rate))
        self.layer3 = ResidualBlock(c2, c3, drop3)
        self.layer4 = ResidualBlock(c3, c4, drop4)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="leaky_relu")

    def stages_of(self, images: Tensor) -> list[Tensor]:
        maps = [images]
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            maps.append(layer(maps[-1]))
        return maps[1:]


def widths_of(width: int | Sequence[int]) -> tuple[int, int, int, int]:
    """64 -> (64, 160, 320, 640), the published proportions; four numbers stay what they are."""
    widths = (width, round(2.5 * width), 5 * width, 10 * width) if isinstance(width, int) else tuple(width)
    if len(widths) != 4 or any(not isinstance(w, int) or w < 1 for w in widths):
        raise RecipeError(f"width of ResNet-12 must be one positive integer or four of them, got {width!r}")
    return widths


class Conv3x3(nn.Conv2d):
    """The same sums as its parent, on a CPU in fewer steps while it learns.

    On maps of at most 4x4 pixels the gradient of a convolution costs up to five times that of one matrix product.
    """

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__(inside, outside, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        if not torch.is_grad_enabled() or x.device.type != "cpu" or max(height, width) > SMALL_MAP:
            return super().forward(x)
        padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1))
        shifted = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
        rows = torch.cat(shifted, dim=-1).flatten(0, 2)  # (B H W, 9 inside)
        sums = rows @ self.weight.permute(2, 3, 1, 0).flatten(0, 2)
        return sums.view(len(x), height, width, -1).permute(0, 3, 1, 2)


class DropBlock(nn.Module):
    r"""Ghiasi et al. 2018: drop whole squares of a map, because neighbouring pixels tell the same story.

    A seed falls on each place where a b x b block fits, with probability

    .. math:: \gamma = \frac{1 - keep}{b^2} \cdot \frac{H W}{(H - b + 1)(W - b + 1)}

    so that about 1 - keep of the map is lost (a little less, where blocks overlap).  All b x b cells below a seed
    become zero, each channel of each image on its own, and what is left is scaled up to the old mean.  ``keep`` falls
    linearly from 1 to 1 - ``drop_rate`` over ``steps`` training steps.  The ramp's counter ``step`` is saved with the
    weights; it moves in training mode only, once per pass.
    """

    step: Tensor  # () int64, training passes so far

    def __init__(self, *, block_size: int, drop_rate: float = 0.1, steps: int = 40_000):
        super().__init__()
        if block_size < 1:
            raise RecipeError(f"dropblock_size must be at least 1 pixel of the map, got {block_size}")
        if not 0 <= drop_rate < 1:
            raise RecipeError(f"drop_rate must be in [0, 1), got {drop_rate}")
        if steps < 1:
            raise RecipeError(f"dropblock_steps must be at least 1 training step, got {steps}")
        self.block_size, self.drop_rate, self.steps = block_size, drop_rate, steps
        self.passes = 1  # per training step; more when a step takes several tasks in turn
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    @property
    def keep(self) -> Tensor:
        """() share of the map that the next training pass keeps; a tensor, so that no GPU has to wait for it."""
        return 1 - self.drop_rate * (self.step // self.passes / self.steps).clamp(max=1)

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, H, W) -> the same shape; the identity in evaluation mode and at drop_rate 0."""
        if not self.training or self.drop_rate == 0:
            return maps
        mask = drop_mask(maps, self.block_size, self.keep)
        self.step += 1
        # Everything can be dropped when a batch is one tiny map: zeros then, not 0 * inf.
        scale = mask.numel() / mask.sum(dtype=torch.float32).clamp(min=1)
        return maps * (mask * scale).to(maps.dtype)


def shorten_ramps(module: nn.Module, steps: int, *, passes: int = 1) -> None:
    """Let every DropBlock below ``module`` reach full strength within ``steps`` of a run, each of ``passes`` passes."""
    for part in module.modules():
        if isinstance(part, DropBlock):
            part.steps, part.passes = max(1, min(part.steps, steps)), passes


def restart_ramps(module: nn.Module, steps: int, *, passes: int = 1) -> None:
    """Let every DropBlock below ``module`` begin anew and reach full strength in ``steps`` steps of ``passes`` each."""
    for part in module.modules():
        if isinstance(part, DropBlock):
            part.steps, part.passes = steps, passes
            part.step.zero_()


def drop_mask(maps: Tensor, block_size: int, keep: Tensor) -> Tensor:
    """(B, C, H, W) of 1 (kept) and 0 (inside a dropped block), drawn from torch's global generator."""
    b, c, h, w = maps.shape
    rows, columns = h - block_size + 1, w - block_size + 1  # places where a whole block fits
    if min(rows, columns) < 1:
        raise RecipeError(
            f"dropblock_size must be at most {min(h, w)} (the side of the {h}x{w} map it acts on), got {block_size}; "
            "build the backbone with the image_size it trains at, or with a smaller dropblock_size"
        )
    gamma = (1 - keep) / block_size**2 * (h * w) / (rows * columns)
    seed = (torch.rand(b, c, rows, columns, device=maps.device) < gamma).float()
    grow = block_size - 1  # a seed is the top left cell of its block: every window that reaches it is dropped
    return 1 - F.max_pool2d(F.pad(seed, (grow, grow, grow, grow)), block_size, stride=1)
