"""Batched augmentation of uint8 images.

Every random number comes from the generator that is passed in.  So the same (seed, step) gives the same pixels on
every run and after every restart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from glocal.common.errors import RecipeError
from glocal.research.types import Preprocess

GREY = (0.299, 0.587, 0.114)  # luma of ITU-R 601, as Pillow has it


@dataclass(frozen=True)
class Augment:
    """What training does to an image, in this order: random crop, flip, colour jitter, rotation."""

    crop_padding: int = 0  # pad by this many pixels on each side, then cut a random window ...
    crop_size: int | None = None  # ... of this side; None is the old size.  A smaller window trains faster
    flip: bool = False  # left-right, for half of the images
    rotate: Literal["none", "one", "four"] = "none"  # a random quarter turn per image, or all four of each
    jitter: float = 0.0  # brightness, contrast and saturation each by a factor in [1 - jitter, 1 + jitter]

    def __post_init__(self) -> None:
        if self.crop_padding < 0:
            raise RecipeError(f"augment.crop_padding must be 0 or more pixels, got {self.crop_padding}")
        if self.crop_size is not None and self.crop_size < 1:
            raise RecipeError(f"augment.crop_size must be 1 or more pixels, got {self.crop_size}")
        if not 0 <= self.jitter < 1:
            raise RecipeError(f"augment.jitter must be in [0, 1), got {self.jitter}")
        if self.rotate not in ("none", "one", "four"):
            raise RecipeError(f"augment.rotate must be none, one or four, got {self.rotate!r}")

    def source(self, preprocess: Preprocess) -> Preprocess:
        """How images are prepared before: a random crop takes the image as stored, border and all.

        ``resize`` and the centre crop after it are for evaluation, and for training that does not crop by itself.
        An image of another shape or size than the backbone's is still brought to it.
        """
        return replace(preprocess, resize=None) if self.crop_padding or self.crop_size else preprocess

    @property
    def copies(self) -> int:
        """How many images come out for each that goes in."""
        return 4 if self.rotate == "four" else 1

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """uint8 (B, 3, H, W) -> uint8 (B, 3, H', W'), the upright batch first of (4B, 3, H', W') when rotate is "four".

        H' = W' = crop_size, or H and W.  A switched-off part draws no random numbers.  Those that are drawn come from
        ``generator``, which is on the CPU, whatever device the images are on.
        """
        if self.crop_padding or self.crop_size:
            images = random_crop(images, self.crop_padding, generator, self.crop_size)
        if self.flip:
            half = torch.rand(len(images), generator=generator) < 0.5
            images = torch.where(half.to(images.device).view(-1, 1, 1, 1), images.flip(-1), images)
        if self.jitter:
            images = colour_jitter(images, self.jitter, generator)
        if self.rotate == "none":
            return images
        if self.rotate == "four":
            return turn(images.repeat(4, 1, 1, 1), torch.arange(4).repeat_interleave(len(images)))
        return turn(images, torch.randint(4, (len(images),), generator=generator))


def random_crop(images: Tensor, padding: int, generator: Generator, size: int | None = None) -> Tensor:
    """Zero-pad by ``padding`` and cut one window per image, a square of side ``size`` or of the old size."""
    n, _, h, w = images.shape
    height, width = (h, w) if size is None else (size, size)
    room = (h + 2 * padding - height, w + 2 * padding - width)
    if min(room) < 0:
        raise RecipeError(f"augment.crop_size = {size} is more than images of {h} x {w} padded by {padding} have")
    corner = torch.stack([torch.randint(free + 1, (n,), generator=generator) for free in room])
    return window(F.pad(images, [padding] * 4), corner, (height, width))


def window(images: Tensor, corner: Tensor, size: tuple[int, int]) -> Tensor:
    """Cut (B, C, h, w) out of (B, C, H, W), its upper left corner (2, B) given per image."""
    rows = corner[0].view(-1, 1, 1) + torch.arange(size[0]).view(1, -1, 1)  # (B, h, 1)
    columns = corner[1].view(-1, 1, 1) + torch.arange(size[1]).view(1, 1, -1)  # (B, 1, w)
    image = torch.arange(len(images)).view(-1, 1, 1)
    rows, columns, image = (index.to(images.device) for index in (rows, columns, image))
    return images.permute(0, 2, 3, 1)[image, rows, columns].permute(0, 3, 1, 2)


def shift(images: Tensor, down: int, right: int) -> Tensor:
    """Move every image, repeating its border."""
    reach = max(abs(down), abs(right))
    if not reach:
        return images
    padded = F.pad(images.float(), [reach] * 4, mode="replicate").to(images.dtype)
    h, w = images.shape[-2:]
    return padded[..., reach - down : reach - down + h, reach - right : reach - right + w]


def turn(images: Tensor, quarters: Tensor) -> Tensor:
    """Rotate image b by quarters[b] * 90 degrees; images must be square."""
    h, w = images.shape[-2:]
    if h != w:
        raise RecipeError(f"quarter turns need square images, got {h} x {w}")
    out, quarters = images.clone(), quarters.to(images.device)
    for k in (1, 2, 3):
        out[quarters == k] = images[quarters == k].rot90(k, (-2, -1))
    return out


def colour_jitter(images: Tensor, strength: float, generator: Generator) -> Tensor:
    """Brightness, contrast, saturation: blend with black, with the mean grey, with the grey image."""
    factor = 1 + strength * (2 * torch.rand(3, len(images), 1, 1, 1, generator=generator) - 1)
    factor, weight = factor.to(images.device), torch.tensor(GREY, device=images.device).view(1, 3, 1, 1)
    x = (images.float() * factor[0]).clamp(0, 255)
    mean = (x * weight).sum(1, keepdim=True).mean((-2, -1), keepdim=True)
    x = (mean + (x - mean) * factor[1]).clamp(0, 255)
    grey = (x * weight).sum(1, keepdim=True)
    x = (grey + (x - grey) * factor[2]).clamp(0, 255)
    return x.round().to(torch.uint8)
