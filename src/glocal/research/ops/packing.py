"""Maps of an earlier stage behind those of the last, in one tensor: each 2x2 of their pixels becomes four channels.

A method gets one tensor of maps.  One that also wants the stage before the last unpacks it from there, without loss.

>>> last, early = torch.zeros(1, 3, 2, 2), torch.arange(16.0).view(1, 1, 4, 4)
>>> maps = pack(last, early)
>>> maps.shape
torch.Size([1, 7, 2, 2])
>>> maps[0, 3:, 0, 0]
tensor([0., 1., 4., 5.])
>>> torch.equal(unpack(maps, early_channels=1)[1], early)
True
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from glocal.common.errors import DataError, RecipeError

RATIO = 2  # the early map is this many times as wide and as high as the last
PACKED = RATIO * RATIO  # channels that one channel of the early map becomes


def pack(last: Tensor, early: Tensor) -> Tensor:
    """last (B, C, H, W), early (B, E, 2H, 2W) -> (B, C + 4E, H, W).

    An early map that lacks one row and column (21x21 before 11x11) gets them as zeros.  The stride-2 convolution that
    follows it pads just there.
    """
    if not all(fits(*sides) for sides in zip(early.shape[2:], last.shape[2:], strict=True)):
        raise DataError(
            f"an early map must be twice as high and wide as the last to be packed behind it, got "
            f"{early.shape[2]}x{early.shape[3]} and {last.shape[2]}x{last.shape[3]}"
        )
    lacking = [RATIO * after - before for before, after in zip(early.shape[2:], last.shape[2:], strict=True)]
    if any(lacking):
        early = F.pad(early, (0, lacking[1], 0, lacking[0]))
    return torch.cat([last, F.pixel_unshuffle(early, RATIO)], dim=1)


def fits(before: int, after: int) -> bool:
    """May a map of this side be packed behind one of that side?"""
    return RATIO * after - 1 <= before <= RATIO * after


def unpack(maps: Tensor, early_channels: int) -> tuple[Tensor, Tensor]:
    """(B, C + 4E, H, W) -> last (B, C, H, W), early (B, E, 2H, 2W); E = ``early_channels``."""
    n_last = last_channels(maps.shape[1], early_channels)
    return maps[:, :n_last], F.pixel_shuffle(maps[:, n_last:], RATIO)


def last_channels(total: int, early_channels: int) -> int:
    """C of ``total`` = C + 4E channels."""
    if early_channels < 0 or PACKED * early_channels >= total:
        raise RecipeError(
            f"early_channels must be at least 0 and, at {PACKED} packed channels each, leave some of the {total} to "
            f"the last map, got {early_channels}; a backbone with stages = [3, 4] has the number in its early_channels"
        )
    return total - PACKED * early_channels
