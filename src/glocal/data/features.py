"""The feature bank: every image through the backbone once, its map kept on disk for the next call.

A bank is a folder of the cache, named by everything its numbers depend on:

    maps.bin   n rows of C * H * W numbers, row i = map of dataset image i; holes where nothing was encoded yet
    sums.bin   n checksums, 0 where the row is not there; written after the rows they vouch for
    bank.json  shape of one map, written last at creation
    lock       held while building; the system frees it when its holder dies, so it cannot go stale

Whoever opens a bank checks the rows it wants against their checksums.  Rows that a killed builder left half written,
a bad disk changed or somebody copied from another bank do not match, and are encoded again.  Two builders at once
take turns, and the second finds the work done.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock
from torch import Tensor

from glocal.data.augment import shift
from glocal.data.cache import cache_dir
from glocal.data.dataset import ClassDataset
from glocal.data.loader import ImageLoader
from glocal.errors import DataError
from glocal.files import write_text
from glocal.types import Encoder

Indices = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]  # (done, total)

FORMAT = 2  # part of every key: raise it when the meaning of a stored number changes
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


def encode(
    encoder: Encoder,
    dataset: ClassDataset,
    wanted: Indices,
    *,
    view: View = PLAIN,
    batch_size: int = BATCH,
    workers: int = 2,
    device: torch.device | str = "cpu",
) -> Iterator[tuple[Indices, Tensor]]:
    """Yield (indices, maps) batch by batch, each image decoded and encoded once.

    The last batch is filled up to full size, because kernels choose their order of summation by the batch size, and
    the map of an image must not depend on how many others were asked for.
    """
    if getattr(encoder, "training", False):
        raise DataError(
            "the backbone is in training mode, where a map depends on its batch; call backbone.eval() first"
        )
    loader = ImageLoader(dataset, encoder.preprocess, workers=workers)
    for indices, images in loader.batches(wanted, batch_size):
        missing = batch_size - len(images)
        if missing:
            images = torch.cat([images, images[-1:].expand(missing, -1, -1, -1)])
        with torch.inference_mode():  # ends before the yield: the caller must not find itself inside
            images = view(images).to(device).contiguous(memory_format=torch.channels_last)
            maps = encoder(encoder.preprocess.normalize(images))[: len(indices)]
        yield indices, maps


class FeatureBank:
    """``bank(indices)`` gives maps (B, C, H, W) in float32; rows must have been asked for when it was built."""

    def __init__(self, maps: npt.NDArray[Any], row: Indices):
        self._maps = maps  # (rows, C, H, W)
        self._row = row  # (n,) row of every dataset image, -1 for those that are not here

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one map."""
        c, h, w = self._maps.shape[1:]
        return c, h, w

    def __call__(self, indices: Indices) -> Tensor:
        _check_range(indices, len(self._row))
        rows = self._row[indices]
        if (rows < 0).any():
            absent = int(indices[rows < 0][0])
            raise DataError(f"image {absent} is not in this feature bank; name it in `wanted` when building the bank")
        return torch.from_numpy(self._maps[rows]).float()

    @classmethod
    def build(
        cls,
        encoder: Encoder,
        dataset: ClassDataset,
        *,
        wanted: Indices | None = None,
        view: View = PLAIN,
        dtype: Literal["float32", "float16"] = "float32",
        folder: Path | None = None,
        batch_size: int = BATCH,
        workers: int = 2,
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> FeatureBank:
        """Open the bank of these weights, pictures, preprocessing and view; encode what is wanted and missing.

        ``wanted`` are dataset indices (all when None), e.g. ``tasks.images()``; ``folder`` is where banks live.
        """
        key = bank_key(encoder, dataset, view=view, dtype=dtype, batch_size=batch_size)
        home = (folder or cache_dir() / "banks") / key[:32]
        rows = _wanted_rows(wanted, dataset)
        try:
            home.mkdir(parents=True, exist_ok=True)
            with FileLock(home / "lock"):
                files = _Files(home, key, len(dataset), dtype)
                missing = rows[~files.intact(rows)]
                batches = encode(
                    encoder, dataset, missing, view=view, batch_size=batch_size, workers=workers, device=device
                )
                finished = 0
                for indices, maps in batches:
                    files.write(indices, maps)
                    finished += len(indices)
                    if progress is not None:
                        progress(finished, len(missing))
                return cls(files.maps(), _places(rows, rows, len(dataset)))
        except OSError as error:
            raise DataError(
                f"the feature bank in {home} could not be written: {error.strerror or error}; free some space or "
                "point GLOCAL_CACHE at another disk, what was encoded so far is kept"
            ) from error

    @classmethod
    def in_memory(
        cls, encoder: Encoder, dataset: ClassDataset, *, wanted: Indices | None = None, **how: Any
    ) -> FeatureBank:
        """The same without a file, for weights that will be different in a moment (validation while training).

        ``how``: view, batch_size, workers, device, as for ``build``.
        """
        rows = _wanted_rows(wanted, dataset)
        maps = torch.cat([batch.float().cpu() for _, batch in encode(encoder, dataset, rows, **how)])
        return cls(maps.contiguous().numpy(), _places(rows, np.arange(len(rows)), len(dataset)))


def bank_key(
    encoder: Encoder, dataset: ClassDataset, *, view: View = PLAIN, dtype: str = "float32", batch_size: int = BATCH
) -> str:
    """Hash of everything a stored map depends on."""
    prepared = encoder.preprocess.fingerprint()
    parts = [FORMAT, encoder.fingerprint(), dataset.manifest, prepared, repr(view), dtype, batch_size]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _wanted_rows(wanted: Indices | None, dataset: ClassDataset) -> Indices:
    if wanted is None:
        return np.arange(len(dataset))
    if not len(wanted):
        raise DataError("a feature bank needs at least one image, but `wanted` is empty")
    _check_range(wanted, len(dataset))
    return np.unique(wanted)


def _check_range(indices: Indices, n: int) -> None:
    if len(indices) and not 0 <= indices.min() <= indices.max() < n:
        raise DataError(f"image indices must be in 0..{n - 1}, got {indices.min()}..{indices.max()}")


def _places(images: Indices, rows: Indices, n: int) -> Indices:
    place = np.full(n, -1, np.int64)
    place[images] = rows
    return place


class _Files:
    """The files of one bank, opened under its lock; files that do not fit together are started anew."""

    def __init__(self, home: Path, key: str, n: int, dtype: str):
        self.home, self.key, self.n, self.dtype = home, key, n, np.dtype(dtype)
        self.shape = self._stored_shape()
        self.sums = np.zeros(n, np.uint32) if self.shape is None else np.fromfile(home / "sums.bin", np.uint32)

    def _stored_shape(self) -> tuple[int, ...] | None:
        try:
            shape = tuple(map(int, json.loads((self.home / "bank.json").read_text("utf-8"))["shape"]))
            sizes = {name: (self.home / name).stat().st_size for name in ("maps.bin", "sums.bin")}
        except (OSError, ValueError, KeyError, TypeError):
            return None
        fits = len(shape) == 3 and min(shape) > 0 and sizes == self._sizes(shape)
        return shape if fits else None

    def _sizes(self, shape: tuple[int, ...]) -> dict[str, int]:
        return {"maps.bin": self.n * int(np.prod(shape)) * self.dtype.itemsize, "sums.bin": self.n * 4}

    def intact(self, rows: Indices) -> npt.NDArray[np.bool_]:
        """Which of these rows are there, as they were written, for this bank."""
        if self.shape is None:
            return np.zeros(len(rows), bool)
        maps, stored = self.maps(), self.sums[rows].tolist()
        checks = (known != 0 and self._sum(maps[i]) == known for i, known in zip(rows.tolist(), stored, strict=True))
        return np.fromiter(checks, bool, len(rows))

    def write(self, indices: Indices, maps: Tensor) -> None:
        """Write rows by file calls, not through a memory map: a full disk is then an error and not a crash."""
        rows = self._narrow(maps)
        if self.shape != rows.shape[1:]:
            self._create(rows.shape[1:])
        with open(self.home / "maps.bin", "r+b") as file:
            for index, row in zip(indices.tolist(), rows, strict=True):
                file.seek(index * row.nbytes)
                file.write(row.data)
        self.sums[indices] = [self._sum(row) for row in rows]
        with open(self.home / "sums.bin", "r+b") as file:
            file.write(self.sums.data)

    def maps(self) -> npt.NDArray[Any]:
        assert self.shape is not None
        return np.asarray(np.memmap(self.home / "maps.bin", self.dtype, mode="r", shape=(self.n, *self.shape)))

    def _create(self, shape: tuple[int, ...]) -> None:
        (self.home / "bank.json").unlink(missing_ok=True)
        self.shape, self.sums = shape, np.zeros(self.n, np.uint32)
        for name, size in self._sizes(shape).items():
            (self.home / name).unlink(missing_ok=True)  # a reader of the old file keeps it
            with open(self.home / name, "wb") as file:
                file.truncate(size)
        write_text(self.home / "bank.json", json.dumps({"shape": shape}))

    def _narrow(self, maps: Tensor) -> npt.NDArray[Any]:
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(maps.float().cpu().numpy().astype(self.dtype))
        if self.dtype == np.float16 and not np.isfinite(rows).all():
            raise DataError("maps have values beyond the range of float16 (65504); build the bank with dtype float32")
        return rows

    def _sum(self, row: npt.NDArray[Any]) -> int:
        """Checksum of a row of this bank and no other; never 0, which means that the row is not there."""
        return zlib.crc32(row.data, zlib.crc32(f"{self.key}{self.shape}".encode())) or 1


def bank_sizes(folder: Path | None = None) -> dict[str, int]:
    """Bytes on disk of every bank in the cache (holes not counted)."""
    home = folder or cache_dir() / "banks"
    return {
        bank.name: sum(file.stat().st_blocks * 512 for file in bank.iterdir())
        for bank in sorted(home.glob("*"))
        if bank.is_dir()
    }


def clear_banks(folder: Path | None = None) -> None:
    shutil.rmtree(folder or cache_dir() / "banks", ignore_errors=True)
