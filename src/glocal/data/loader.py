"""From dataset indices to uint8 tensors of the size a backbone wants, decoded in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.data.dataset import ClassDataset
from glocal.data.prepared import MappedBlobs, MappedImages
from glocal.types import Preprocess
from glocal_runtime.errors import DataError
from glocal_runtime.images import fit

HELD_UP_TO = 1 << 30  # bytes of pixels; a prepared split that needs more is read from its files again and again


class Images(Protocol):
    """uint8 pictures that can be indexed by a tensor of rows: a tensor of them, or what reads them when asked."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Tensor) -> Tensor: ...


class ImageLoader:
    """``loader(indices)`` gives uint8 (B, 3, size, size).  The number of workers never changes the result.

    Workers are threads: Pillow and numpy release the interpreter while they decode and resize.  ``verify`` refuses a
    picture whose content changed since the data set was opened.
    """

    def __init__(self, dataset: ClassDataset, preprocess: Preprocess, *, workers: int = 2, verify: bool = False):
        self.dataset, self.preprocess, self.workers, self.verify = dataset, preprocess, max(1, workers), verify

    def __call__(self, indices: npt.NDArray[np.int64]) -> Tensor:
        with ThreadPoolExecutor(self.workers) as pool:
            return self._stack(list(pool.map(self._one, indices.tolist())))

    def hold(self, indices: npt.NDArray[np.int64]) -> Images:
        """The pictures for training, which asks for each of them many times: the same pixels either way.

        They are decoded once and stay in memory, unless they come from a prepared data set and would take more than
        ``HELD_UP_TO`` bytes there: then each is read through the memory map whenever it is asked for.
        """
        mapped = isinstance(self.dataset.source, MappedImages | MappedBlobs)
        if mapped and len(indices) * 3 * self.preprocess.size**2 > HELD_UP_TO:
            return _ReadThrough(self, indices)
        return self(indices)

    def batches(self, indices: npt.NDArray[np.int64], size: int) -> Iterator[tuple[npt.NDArray[np.int64], Tensor]]:
        """Batches in order; the next one is decoded while the caller works on this one."""
        if size < 1:
            raise DataError(f"batch size must be at least 1, got {size}")
        pool = ThreadPoolExecutor(self.workers)
        try:
            waiting = [pool.submit(self._one, i) for i in indices[:size].tolist()]
            for at in range(0, len(indices), size):
                images = [future.result() for future in waiting]
                waiting = [pool.submit(self._one, i) for i in indices[at + size : at + 2 * size].tolist()]
                yield indices[at : at + size], self._stack(images)
        finally:  # also when an image is bad or the caller stops half way: then nobody needs the rest decoded
            pool.shutdown(cancel_futures=True)

    def _one(self, i: int) -> npt.NDArray[np.uint8]:
        return fit(self.dataset.same_image(i) if self.verify else self.dataset.image(i), self.preprocess)

    def _stack(self, images: list[npt.NDArray[np.uint8]]) -> Tensor:
        """NHWC arrays -> an NCHW view of them, that is channels-last memory: what convolutions on a CPU like best."""
        if not images:
            return torch.empty(0, 3, self.preprocess.size, self.preprocess.size, dtype=torch.uint8)
        return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)


class _ReadThrough:
    """Row i is picture ``indices[i]``, read when it is asked for."""

    def __init__(self, loader: ImageLoader, indices: npt.NDArray[np.int64]) -> None:
        self._loader, self._indices = loader, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self._loader(self._indices[rows.numpy()])
