"""The feature bank: every image through the backbone once, its map kept on disk for the next call.

A bank is named by everything its numbers depend on.  Every image is compared with its digest while it is encoded, so
that a map cannot get under the name of another image.  A bank is a folder of the cache:

    maps.npy   (n, C, H, W) float32: row i is the map of dataset image i.
    done.bin   n bytes: 1 where the row is there.
    lock       held while building.

Rows are marked after they are written.  The system frees the lock when its holder dies.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL
import torch
from filelock import FileLock
from torch import Tensor

from glocal.common.cache import cache_dir
from glocal.common.errors import DataError
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.loader import BATCH, PLAIN, View, at_once, encode
from glocal.research.ops.similarity import pool
from glocal.research.source_hash import source_hash
from glocal.research.types import ImageEncoder, Preprocess

Indices = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]  # (done, total)

MAPS_UP_TO = 1 << 30  # bytes of maps; beyond, methods that need means alone get a bank of those
FORMAT = 3  # part of every key: raise it when the meaning of a stored number changes


class Pooled:
    """An encoder whose maps are the 1x1 means of another's: a bank of them is smaller by the number of pixels."""

    def __init__(self, encoder: ImageEncoder):
        self.encoder = encoder

    @property
    def preprocess(self) -> Preprocess:
        return self.encoder.preprocess

    @property
    def channels(self) -> int:
        return self.encoder.channels

    @property
    def training(self) -> bool:
        return bool(getattr(self.encoder, "training", False))

    def modules(self) -> Iterable[Any]:
        """For the hash of the source that computes them."""
        return self.encoder.modules() if hasattr(self.encoder, "modules") else [self.encoder]

    def __call__(self, images: Tensor) -> Tensor:
        # Contiguous, as maps are that come out of a bank: the same bits as their means.
        return pool(self.encoder(images).contiguous())[:, :, None, None]

    def fingerprint(self) -> str:
        return f"means of {self.encoder.fingerprint()}"


def is_large(encoder: ImageEncoder, images: int, device: torch.device | str) -> bool:
    """Whether a bank of so many maps is beyond what is kept for the sake of methods that need more than means."""
    side = encoder.preprocess.size
    with torch.inference_mode():
        return images * 4 * encoder(torch.zeros(1, 3, side, side, device=device)).numel() > MAPS_UP_TO


class FeatureBank:
    """``bank(indices)`` gives maps (B, C, H, W) in float32; rows must have been asked for when it was built."""

    def __init__(self, maps: npt.NDArray[Any], row: Indices, home: Path | None = None):
        self._maps = np.asarray(maps)  # (rows, C, H, W); taking rows of a np.memmap is slower
        self._row = row  # (n,) row of every dataset image, -1 for those that are not here
        self._home = home

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
            message = f"image {absent} is not in this feature bank; name it in `wanted` when building the bank"
            raise DataError(message, code="not-in-bank")
        return torch.from_numpy(self._maps[rows]).float()

    def drop(self) -> None:
        """Take it off the disk, when nobody will ask for these weights again; what has it open reads on."""
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)

    @classmethod
    def build(
        cls,
        encoder: ImageEncoder,
        dataset: ClassDataset,
        *,
        wanted: Indices | None = None,
        view: View = PLAIN,
        folder: Path | None = None,
        batch_size: int = BATCH,
        workers: int = 2,
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> FeatureBank:
        """Open the bank of these weights, images, preprocessing and view; encode what is wanted and missing.

        ``wanted`` are dataset indices (all when None), e.g. ``tasks.images()``; ``folder`` is where banks live.
        """
        key = bank_key(encoder, dataset, view=view, batch_size=batch_size, device=device)
        home, rows = (folder or cache_dir() / "banks") / key[:32], _wanted_rows(wanted, dataset)
        options: dict[str, Any] = {"view": view, "batch_size": batch_size, "workers": workers, "device": device}
        try:
            home.mkdir(parents=True, exist_ok=True)
            with FileLock(home / "lock"):
                files = _Files(home, len(dataset))
                missing = rows[files.done[rows] == 0]
                finished = 0
                for indices, maps in encode(encoder, dataset, missing, verify=True, **options):
                    files.write(indices, maps)
                    finished += len(indices)
                    if progress is not None:
                        progress(finished, len(missing))
                return cls(files.maps(), _places(rows, rows, len(dataset)), home)
        except FileNotFoundError:  # somebody deleted the cache while it was written
            return cls.in_memory(encoder, dataset, wanted=rows, **options)
        except OSError as error:
            raise DataError(
                f"the feature bank in {home} could not be written: {error.strerror or error}; free some space or "
                "point GLOCAL_CACHE at another disk, what was encoded so far is kept",
                code="cache",
            ) from error

    @classmethod
    def in_memory(
        cls,
        encoder: ImageEncoder,
        dataset: ClassDataset,
        *,
        wanted: Indices | None = None,
        view: View = PLAIN,
        batch_size: int = BATCH,
        workers: int = 2,
        device: torch.device | str = "cpu",
    ) -> FeatureBank:
        """The same without a file, for weights that will be different in a moment (validation while training)."""
        rows = _wanted_rows(wanted, dataset)
        batches = encode(encoder, dataset, rows, view=view, batch_size=batch_size, workers=workers, device=device)
        maps = torch.cat([batch.float().cpu() for _, batch in batches])
        return cls(maps.contiguous().numpy(), _places(rows, np.arange(len(rows)), len(dataset)))


def bank_key(
    encoder: ImageEncoder,
    dataset: ClassDataset,
    *,
    view: View = PLAIN,
    batch_size: int = BATCH,
    device: torch.device | str = "cpu",
) -> str:
    """Hash of everything a stored map depends on; Pillow resizes, torch and the device compute."""
    programs = [torch.device(device).type, str(torch.__version__), PIL.__version__, source_hash([encoder])]
    prepared, batch = encoder.preprocess.fingerprint(), at_once(encoder.preprocess, batch_size)
    parts = [FORMAT, encoder.fingerprint(), dataset.manifest, prepared, repr(view), "float32", batch, *programs]
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

    def __init__(self, home: Path, n: int):
        self.home, self.n = home, n
        self.done = np.zeros(n, np.uint8)
        try:
            maps, done = self.maps(), np.fromfile(home / "done.bin", np.uint8)
        except (OSError, ValueError):
            return
        if len(maps) == len(done) == n and maps.ndim == 4 and maps.dtype == np.float32:
            self.done = done

    def maps(self) -> npt.NDArray[Any]:
        stored: npt.NDArray[Any] = np.load(self.home / "maps.npy", mmap_mode="r", allow_pickle=False)
        return stored

    def write(self, indices: Indices, maps: Tensor) -> None:
        """By file calls, not through the memory map: a full disk is then an error and not a crash."""
        rows = np.ascontiguousarray(maps.float().cpu().numpy())
        if not self.done.any():
            self._create(rows.shape[1:])
        with open(self.home / "maps.npy", "r+b") as file:
            begin = file.seek(0, os.SEEK_END) - self.n * rows[0].nbytes
            for index, row in zip(indices.tolist(), rows, strict=True):
                file.seek(begin + index * row.nbytes)
                file.write(row.data)
        self.done[indices] = 1
        with open(self.home / "done.bin", "r+b") as file:
            file.write(self.done.data)

    def _create(self, shape: tuple[int, ...]) -> None:
        for name in ("done.bin", "maps.npy"):
            (self.home / name).unlink(missing_ok=True)  # a reader of the old file keeps it
        np.lib.format.open_memmap(self.home / "maps.npy", mode="w+", dtype=np.float32, shape=(self.n, *shape))
        (self.home / "done.bin").write_bytes(self.done.tobytes())
