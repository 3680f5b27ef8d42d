"""From dataset indices to uint8 tensors of the size a backbone wants, decoded in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.common.errors import DataError
from glocal.recognizer.photos.images import fit
from glocal.recognizer.photos.sources import made_ahead
from glocal.research.data.dataset import ClassDataset, Indices
from glocal.research.data.prepared import MappedImages
from glocal.research.types import Preprocess

HELD_UP_TO = 1 << 30  # bytes of pixels; a prepared split that needs more is read from its files again and again


class ImageLoader:
    """``loader(indices)`` gives uint8 (B, 3, size, size).  The number of workers never changes the result.

    Workers are threads: Pillow and numpy release the interpreter while they decode and resize.  ``verify`` refuses a
    image whose content changed since the data set was opened.
    """

    def __init__(self, dataset: ClassDataset, preprocess: Preprocess, *, workers: int = 2, verify: bool = False):
        self.dataset, self.preprocess, self.workers, self.verify = dataset, preprocess, max(1, workers), verify

    def __call__(self, indices: Indices) -> Tensor:
        with ThreadPoolExecutor(self.workers) as pool:
            return self._stack(list(pool.map(self._one, indices.tolist())))

    def hold(self, indices: Indices) -> Tensor | ReadThrough:
        """The images for training, which asks for each of them many times: the same pixels either way.

        They are decoded once and stay in memory.  Those of a prepared data set that would take more than ``HELD_UP_TO``
        bytes are read through the memory map, each whenever it is asked for.
        """
        mapped = isinstance(self.dataset.source, MappedImages)
        if mapped and len(indices) * 3 * self.preprocess.size**2 > HELD_UP_TO:
            return ReadThrough(self, indices)
        return self(indices)

    def batches(self, indices: Indices, size: int) -> Iterator[tuple[Indices, Tensor]]:
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

    def __init__(self, loader: ImageLoader, indices: Indices) -> None:
        self._loader, self._indices = loader, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self._loader(self._indices[rows.numpy()])


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
