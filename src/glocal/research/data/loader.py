"""From dataset indices to uint8 tensors of the size a backbone wants, decoded in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.common.errors import DataError, RecipeError
from glocal.recognizer.photos.images import fit
from glocal.recognizer.photos.sources import made_ahead
from glocal.research.data.augment import shift
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.prepared import MappedImages
from glocal.research.types import ImageEncoder, Preprocess, normalize

HELD_UP_TO = 1 << 30  # bytes of pixels; a prepared split that needs more is read from its files again and again


class ImageLoader:
    """``loader(indices)`` gives uint8 (B, 3, size, size).  The number of workers never changes the result.

    Workers are threads: Pillow and numpy release the interpreter while they decode and resize.  ``verify`` refuses a
    image whose content changed since the data set was opened.
    """

    def __init__(self, dataset: ClassDataset, preprocess: Preprocess, *, workers: int = 2, verify: bool = False):
        self.dataset, self.preprocess, self.workers, self.verify = dataset, preprocess, max(1, workers), verify

    def __call__(self, indices: npt.NDArray[np.int64]) -> Tensor:
        with ThreadPoolExecutor(self.workers) as pool:
            return self._stack(list(pool.map(self._one, indices.tolist())))

    def hold(self, indices: npt.NDArray[np.int64]) -> Tensor | ReadThrough:
        """The images for training, which asks for each of them many times: the same pixels either way.

        They are decoded once and stay in memory.  Those of a prepared data set that would take more than ``HELD_UP_TO``
        bytes are read through the memory map, each whenever it is asked for.
        """
        mapped = isinstance(self.dataset.source, MappedImages)
        if mapped and len(indices) * 3 * self.preprocess.size**2 > HELD_UP_TO:
            return ReadThrough(self, indices)
        return self(indices)

    def batches(self, indices: npt.NDArray[np.int64], size: int) -> Iterator[tuple[npt.NDArray[np.int64], Tensor]]:
        """Batches in order; the next one is decoded while the caller works on this one."""
        if size < 1:
            raise DataError(f"batch size must be at least 1, got {size}")
        made = made_ahead(self._one, indices.tolist(), size, workers=self.workers)
        for at, images in zip(range(0, len(indices), size), made, strict=True):
            yield indices[at : at + size], self._stack(images)

    def _one(self, i: int) -> npt.NDArray[np.uint8]:
        return fit(self.dataset.same_image(i) if self.verify else self.dataset.image(i), self.preprocess)

    def _stack(self, images: list[npt.NDArray[np.uint8]]) -> Tensor:
        """NHWC arrays -> an NCHW view of them, that is channels-last memory: what convolutions on a CPU like best."""
        if not images:
            return torch.empty(0, 3, self.preprocess.size, self.preprocess.size, dtype=torch.uint8)
        return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)


def on_device(images: Tensor, device: torch.device) -> Tensor:
    """On a GPU the copy comes from pinned memory and nobody waits for it."""
    if device.type != "cuda":
        return images.to(device)
    return images.pin_memory().to(device, non_blocking=True)


class ReadThrough:
    """Row i is image ``indices[i]``, read when it is asked for."""

    def __init__(self, loader: ImageLoader, indices: npt.NDArray[np.int64]) -> None:
        self._loader, self._indices = loader, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self._loader(self._indices[rows.numpy()])


Indices = npt.NDArray[np.int64]

BATCH = 32  # of ResNet-12 at 32 pixels as fast as 128 on a CPU, and little is filled up for few images
AT_ONCE = BATCH * 288**2  # pixels that go through a backbone at once: larger images go a few at a time


@dataclass(frozen=True)
class View:
    """A fixed change of the image before it is encoded: maps cannot be flipped or cropped afterwards."""

    flip: bool = False
    down: int = 0
    right: int = 0

    def __call__(self, images: Tensor) -> Tensor:
        return shift(images.flip(-1) if self.flip else images, self.down, self.right)


PLAIN = View()


def views(n: int, size: int) -> list[View]:
    """The first n of: plain, flipped, then shifts by an eighth of the image, flipped in turn."""
    step = max(1, size // 8)
    shifts = [(0, 0), (step, step), (-step, -step), (step, -step), (-step, step)]
    most = [View(flip, down, right) for down, right in shifts for flip in (False, True)]
    if n > len(most):
        raise RecipeError(f"train.views must be at most {len(most)}, got {n}")
    return most[:n]


def at_once(preprocess: Preprocess, batch_size: int) -> int:
    """Of ``batch_size`` images, how many go through a backbone together: all of them in the usual sizes."""
    return max(1, min(batch_size, AT_ONCE // preprocess.size**2))


def encode(
    encoder: ImageEncoder,
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

    The last batch is filled up to full size: kernels choose their order of summation by the batch size.  The map of an
    image must not depend on the number of others.  ``verify``: see ImageLoader.
    """
    if getattr(encoder, "training", False):
        raise DataError(
            "the backbone is in training mode, where a map depends on its batch; call backbone.eval() first"
        )
    batch_size = at_once(encoder.preprocess, batch_size)
    loader = ImageLoader(dataset, encoder.preprocess, workers=workers, verify=verify)
    for indices, images in loader.batches(wanted, batch_size):
        missing = batch_size - len(images)
        if missing:
            images = torch.cat([images, images[-1:].expand(missing, -1, -1, -1)])
        with torch.inference_mode():  # ends before the yield: the caller must not find itself inside
            images = view(images).to(device).contiguous(memory_format=torch.channels_last)
            maps = encoder(normalize(images, encoder.preprocess))[: len(indices)]
        yield indices, maps


T = TypeVar("T")


class Ahead(Generic[T]):
    """``ahead(i)`` is ``make(i)``; meanwhile a thread makes ``make(i + stride)``, unless that reaches ``end``.

    ``make`` must be a pure function of i.  The last result is kept: asking for it again costs nothing.

    >>> squares = Ahead(lambda i: i * i, end=10)
    >>> squares(3), squares(4), squares(4), squares(9)
    (9, 16, 16, 81)
    """

    def __init__(self, make: Callable[[int], T], *, end: int, stride: int = 1):
        self._make, self._end, self._stride = make, end, stride
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._now: tuple[int, T] | None = None
        self._next: tuple[int, Future[T]] | None = None

    def __call__(self, i: int) -> T:
        if self._now is not None and self._now[0] == i:
            return self._now[1]
        expected = self._next is not None and self._next[0] == i
        made = self._next[1].result() if expected and self._next is not None else self._make(i)
        self._now, following = (i, made), i + self._stride
        self._next = (following, self._thread.submit(self._make, following)) if following < self._end else None
        return made
