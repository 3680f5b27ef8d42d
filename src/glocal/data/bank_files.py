"""The files of a feature bank.  A bank is a folder of the cache:

    maps.bin   n rows of C * H * W numbers, row i = map of dataset image i; holes where nothing was encoded yet
    sums.bin   n checksums, 0 where the row is not there; written after the rows they vouch for
    bank.json  shape of one map, written last at creation
    lock       held while building; the system frees it when its holder dies, so it cannot go stale

Whoever opens a bank checks the rows it wants against their checksums.  Rows that a killed builder left half written,
a bad disk changed or somebody copied from another bank do not match, and are encoded again.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from glocal.data.cache import cache_dir
from glocal_runtime.errors import DataError
from glocal_runtime.files import write_text

Indices = npt.NDArray[np.int64]


class BankFiles:
    """The files of one bank, opened under its lock; files that do not fit together are started anew."""

    def __init__(self, home: Path, key: str, n: int, dtype: str):
        self.home, self.key, self.n, self.dtype = home, key, n, np.dtype(dtype)
        for stray in home.glob(".*.partial"):  # of a builder that was killed while it wrote
            stray.unlink(missing_ok=True)
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
        bank.name: sum(_bytes_on_disk(file.stat()) for file in bank.iterdir())
        for bank in sorted(home.glob("*"))
        if bank.is_dir()
    }


def _bytes_on_disk(found: os.stat_result) -> int:
    blocks: int | None = getattr(found, "st_blocks", None)  # Windows does not say
    return found.st_size if blocks is None else blocks * 512


def clear_banks(folder: Path | None = None) -> None:
    shutil.rmtree(folder or cache_dir() / "banks", ignore_errors=True)
