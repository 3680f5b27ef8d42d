r"""Ghiasi et al. 2018, DropBlock: drop whole squares of a map, because neighbouring pixels tell the same story.

A seed falls on each place where a b x b block fits, with probability

.. math:: \gamma = \frac{1 - keep}{b^2} \cdot \frac{H W}{(H - b + 1)(W - b + 1)}

so that about 1 - keep of the map is lost (a little less, where blocks overlap).  All b x b cells below a seed become
zero, each channel of each image on its own, and what is left is scaled up to the old mean.
``keep`` falls linearly from 1 to 1 - ``drop_rate`` over ``steps`` training steps.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glocal_runtime.errors import RecipeError


class DropBlock(nn.Module):
    """The ramp's counter ``step`` is saved with the weights; it moves in training mode only, once per pass."""

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

    def extra_repr(self) -> str:
        return f"block_size={self.block_size}, drop_rate={self.drop_rate}, steps={self.steps}"


def shorten_ramps(module: nn.Module, steps: int, *, passes: int = 1) -> None:
    """Let every DropBlock below ``module`` reach full strength within ``steps`` of a run, each of ``passes`` passes."""
    for part in module.modules():
        if isinstance(part, DropBlock):
            part.steps, part.passes = max(1, min(part.steps, steps)), passes


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
