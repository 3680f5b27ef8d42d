"""Pictures as a backbone sees them: decoded, changed by a fixed view, encoded batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.data.augment import shift
from glocal.data.dataset import ClassDataset
from glocal.data.loader import ImageLoader
from glocal.types import Encoder
from glocal_runtime.errors import DataError, RecipeError

Indices = npt.NDArray[np.int64]

BATCH = 128


@dataclass(frozen=True)
class View:
    """A fixed change of the picture before it is encoded: maps cannot be flipped or cropped afterwards."""

    flip: bool = False
    down: int = 0
    right: int = 0

    def __call__(self, images: Tensor) -> Tensor:
        return shift(images.flip(-1) if self.flip else images, self.down, self.right)


PLAIN = View()


def views(n: int, size: int) -> list[View]:
    """The first n of: plain, flipped, then shifts by an eighth of the picture, flipped in turn."""
    step = max(1, size // 8)
    shifts = [(0, 0), (step, step), (-step, -step), (step, -step), (-step, step)]
    most = [View(flip, down, right) for down, right in shifts for flip in (False, True)]
    if n > len(most):
        raise RecipeError(f"train.views must be at most {len(most)}, got {n}")
    return most[:n]


def encode(
    encoder: Encoder,
    dataset: ClassDataset,
    wanted: Indices,
    *,
    view: View = PLAIN,
    batch_size: int = BATCH,
    workers: int = 2,
    device: torch.device | str = "cpu",
    verify: bool = False,
) -> Iterator[tuple[Indices, Tensor]]:
    """Yield (indices, maps) batch by batch, each image decoded and encoded once.

    The last batch is filled up to full size, because kernels choose their order of summation by the batch size, and
    the map of an image must not depend on how many others were asked for.  ``verify``: see ImageLoader.
    """
    if getattr(encoder, "training", False):
        raise DataError(
            "the backbone is in training mode, where a map depends on its batch; call backbone.eval() first"
        )
    loader = ImageLoader(dataset, encoder.preprocess, workers=workers, verify=verify)
    for indices, images in loader.batches(wanted, batch_size):
        missing = batch_size - len(images)
        if missing:
            images = torch.cat([images, images[-1:].expand(missing, -1, -1, -1)])
        with torch.inference_mode():  # ends before the yield: the caller must not find itself inside
            images = view(images).to(device).contiguous(memory_format=torch.channels_last)
            maps = encoder(encoder.preprocess.normalize(images))[: len(indices)]
        yield indices, maps
