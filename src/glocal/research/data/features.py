"""The feature bank: every image through the backbone once, its map kept on disk for the next call.

A bank is named by everything its numbers depend on.  Every picture is compared with its digest while it is encoded, so
that a map cannot get under the name of another picture.  Two builders at once take turns, and the second finds the
work done.  A bank is a folder of the cache:

    maps.bin   n rows of C * H * W float32, row i = map of dataset image i; holes where nothing was encoded yet
    sums.bin   n checksums, 0 where the row is not there; written after the rows they vouch for
    bank.json  shape of one map, written last at creation
    lock       held while building; the system frees it when its holder dies, so it cannot go stale

Whoever opens a bank checks the rows it wants against their checksums.  Rows that a killed builder left half written,
a bad disk changed or somebody copied from another bank do not match, and are encoded again.  Rows that are changed or
cut off later, while the bank is in use, are noticed when they are read: the results do not follow them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import weakref
import zlib
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
from glocal.common.files import write_text
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.loader import BATCH, PLAIN, View, at_once, encode
from glocal.research.ops.similarity import pool
from glocal.research.source_hash import source_hash
from glocal.research.types import Encoder, Preprocess

Indices = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]  # (done, total)

TRIES = 3  # times that a bank is begun again whose folder was deleted; then it is kept in memory
READ = 256  # maps looked at together
MAPS_UP_TO = 1 << 30  # bytes of maps; beyond, methods that need means alone get a bank of those
FORMAT = 2  # part of every key: raise it when the meaning of a stored number changes


class Pooled:
    """An encoder whose maps are the 1x1 means of another's: a bank of them is smaller by the number of pixels."""

    def __init__(self, encoder: Encoder):
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


def is_large(encoder: Encoder, pictures: int, device: torch.device | str) -> bool:
    """Whether a bank of so many maps is beyond what is kept for the sake of methods that need more than means."""
    side = encoder.preprocess.size
    with torch.inference_mode():
        return pictures * 4 * encoder(torch.zeros(1, 3, side, side, device=device)).numel() > MAPS_UP_TO


class FeatureBank:
    """``bank(indices)`` gives maps (B, C, H, W) in float32; rows must have been asked for when it was built."""

    def __init__(self, maps: npt.NDArray[Any] | StoredMaps, row: Indices):
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
            told = f"image {absent} is not in this feature bank; name it in `wanted` when building the bank"
            raise DataError(told, code="not-in-bank")
        return torch.from_numpy(self._maps[rows]).float()

    def drop(self) -> None:
        """Take it off the disk, when nobody will ask for these weights again; what has it open reads on."""
        if isinstance(self._maps, StoredMaps):
            shutil.rmtree(self._maps.path.parent, ignore_errors=True)

    @classmethod
    def build(
        cls,
        encoder: Encoder,
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
        """Open the bank of these weights, pictures, preprocessing and view; encode what is wanted and missing.

        ``wanted`` are dataset indices (all when None), e.g. ``tasks.images()``; ``folder`` is where banks live.
        """
        key = bank_key(encoder, dataset, view=view, batch_size=batch_size, device=device)
        home, rows = (folder or cache_dir() / "banks") / key[:32], _wanted_rows(wanted, dataset)
        how: dict[str, Any] = {"view": view, "batch_size": batch_size, "workers": workers, "device": device}

        def on_disk() -> FeatureBank:
            home.mkdir(parents=True, exist_ok=True)
            with FileLock(home / "lock"):
                files = BankFiles(home, key, len(dataset))
                missing = rows[~files.intact(rows)]
                finished = 0
                for indices, maps in encode(encoder, dataset, missing, verify=True, **how):
                    files.write(indices, maps)
                    finished += len(indices)
                    if progress is not None:
                        progress(finished, len(missing))
                return cls(files.maps(), _places(rows, rows, len(dataset)))

        for _ in range(TRIES):
            try:
                return on_disk()
            except FileNotFoundError:  # somebody deleted the cache while it was written
                continue
            except OSError as error:
                raise DataError(
                    f"the feature bank in {home} could not be written: {error.strerror or error}; free some space or "
                    "point GLOCAL_CACHE at another disk, what was encoded so far is kept",
                    code="cache",
                ) from error
        return cls.in_memory(encoder, dataset, wanted=rows, **how)

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
    encoder: Encoder,
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


class StoredMaps:
    """Rows of a file, read when they are asked for and compared with what they were when the bank was opened.

    By file calls: a memory map would end the process when somebody cuts the file short, and would show what somebody
    wrote over it.  The sums are quick ones, of words: they tell of an accident, the checksums on the disk of a mistake.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], sums: npt.NDArray[np.uint64]):
        self.path, self.shape, self._sums = path, shape, sums
        self._file, self._reading = open(path, "rb", buffering=0), threading.Lock()  # noqa: SIM115 - as long as this
        weakref.finalize(self, self._file.close)

    def __getitem__(self, rows: Indices) -> npt.NDArray[Any]:
        found = self.read(rows)
        if found is None or not np.array_equal(quick_sums(found), self._sums[rows]):
            raise DataError(
                f"the feature bank {self.path} was changed by another program while it was in use; run the command "
                "again, the maps that were changed are then computed again",
                code="cache",
            )
        return found

    def read(self, rows: Indices) -> npt.NDArray[Any] | None:
        """As they are in the file; None when it ends before."""
        found = np.empty((len(rows), *self.shape[1:]), np.float32)
        with self._reading:
            for row, into in zip(rows.tolist(), found, strict=True):
                self._file.seek(row * into.nbytes)
                if self._file.readinto(into.data.cast("B")) != into.nbytes:
                    return None
        return found


def quick_sums(maps: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """One of each map (B, C, H, W)."""
    words = maps.reshape(len(maps), int(np.prod(maps.shape[1:])))
    return words.view(np.uint64 if words.shape[1] % 2 == 0 else np.uint32).sum(axis=1, dtype=np.uint64)


class BankFiles:
    """The files of one bank, opened under its lock; files that do not fit together are started anew."""

    def __init__(self, home: Path, key: str, n: int):
        self.home, self.key, self.n = home, key, n
        for stray in home.glob(".*.partial"):  # of a builder that was killed while it wrote
            stray.unlink(missing_ok=True)
        self.shape = self._stored_shape()
        self.sums = np.zeros(n, np.uint32) if self.shape is None else np.fromfile(home / "sums.bin", np.uint32)
        if len(self.sums) != n:  # cut short since it was looked at
            self.shape, self.sums = None, np.zeros(n, np.uint32)
        self.quick = np.zeros(n, np.uint64)  # of the rows that were found intact, and of those written since

    def _stored_shape(self) -> tuple[int, ...] | None:
        try:
            shape = tuple(map(int, json.loads((self.home / "bank.json").read_text("utf-8"))["shape"]))
            sizes = {name: (self.home / name).stat().st_size for name in ("maps.bin", "sums.bin")}
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None
        fits = len(shape) == 3 and min(shape) > 0 and sizes == self._sizes(shape)
        return shape if fits else None

    def _sizes(self, shape: tuple[int, ...]) -> dict[str, int]:
        return {"maps.bin": self.n * int(np.prod(shape)) * 4, "sums.bin": self.n * 4}

    def intact(self, rows: Indices) -> npt.NDArray[np.bool_]:
        """Which of these rows are there, as they were written, for this bank."""
        found = np.zeros(self.n, bool)
        if self.shape is not None:
            stored, there = self.maps(), rows[self.sums[rows] != 0]
            for some in np.split(there, range(READ, len(there), READ)):
                maps = stored.read(some)
                if maps is not None:
                    found[some] = [self._sum(row) for row in maps] == self.sums[some]
                    self.quick[some] = quick_sums(maps)
        return found[rows]

    def write(self, indices: Indices, maps: Tensor) -> None:
        """Write rows by file calls, not through a memory map: a full disk is then an error and not a crash."""
        rows = np.ascontiguousarray(maps.float().cpu().numpy())
        if self.shape != rows.shape[1:]:
            self._create(rows.shape[1:])
        with open(self.home / "maps.bin", "r+b") as file:
            for index, row in zip(indices.tolist(), rows, strict=True):
                file.seek(index * row.nbytes)
                file.write(row.data)
        self.sums[indices], self.quick[indices] = [self._sum(row) for row in rows], quick_sums(rows)
        with open(self.home / "sums.bin", "r+b") as file:
            file.write(self.sums.data)

    def maps(self) -> StoredMaps:
        assert self.shape is not None
        return StoredMaps(self.home / "maps.bin", (self.n, *self.shape), self.quick)

    def _create(self, shape: tuple[int, ...]) -> None:
        (self.home / "bank.json").unlink(missing_ok=True)
        self.shape, self.sums = shape, np.zeros(self.n, np.uint32)
        for name, size in self._sizes(shape).items():
            (self.home / name).unlink(missing_ok=True)  # a reader of the old file keeps it
            with open(self.home / name, "wb") as file:
                file.truncate(size)
        write_text(self.home / "bank.json", json.dumps({"shape": shape}))

    def _sum(self, row: npt.NDArray[Any]) -> int:
        """Checksum of a row of this bank and no other; never 0, which means that the row is not there."""
        return zlib.crc32(row.data, zlib.crc32(f"{self.key}{self.shape}".encode())) or 1
