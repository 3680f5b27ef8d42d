"""Arrays in an ``.npz`` that may be larger than the memory, by blocks of rows."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from glocal.common.errors import DataError
from glocal.research.data.archives import LIMITS, open_zip_member, zip_entries

BLOCK = 16 << 20  # bytes read at a time
MAX_ROW = 256 << 20  # bytes: a row is a picture or a feature, not a data set
_SMALL = 256 << 20  # bytes that ``read`` takes at once: labels, not pictures


@dataclass(frozen=True)
class NpzArray:
    """An array in an npz, of which only a block is ever in memory."""

    path: Path
    entry: zipfile.ZipInfo
    shape: tuple[int, ...]  # (rows, ...)
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def blocks(self, *, max_bytes: int = BLOCK) -> Iterator[NDArray[Any]]:
        """Arrays (some rows, ...), each the caller's own.

        The checksum covers the whole member, so it is judged when the last block was taken: what was made of the
        blocks may be kept only after the iterator ended.
        """
        step = max(1, max_bytes // max(1, self.row_bytes))
        with _member(self.path, self.entry) as stream:
            _header(stream, self._where)
            for row in range(0, len(self), step):
                block = np.empty((min(step, len(self) - row), *self.shape[1:]), self.dtype)
                _fill(stream, block, self._where)
                yield block
            if stream.read(1):  # also makes zipfile compare the checksum
                raise DataError(f"{self._where}: it goes on after its last row; save it again")

    def read(self) -> NDArray[Any]:
        """The whole of a small array, as of labels."""
        if len(self) * self.row_bytes > _SMALL:
            raise DataError(f"{self._where}: an array of {self.shape} is too large to read at once; use blocks()")
        return np.concatenate([np.empty((0, *self.shape[1:]), self.dtype), *self.blocks()])

    @property
    def _where(self) -> str:
        return f"{self.path}:{self.entry.filename}"


def npz_names(path: Path) -> list[str]:
    """The arrays in an npz, without ``.npy``."""
    return [
        entry.filename.removesuffix(".npy") for entry in zip_entries(_regular(path)) if entry.filename.endswith(".npy")
    ]


def open_npz_array(path: Path, name: str) -> NpzArray:
    """The array ``name`` of an npz, stored or deflated; only its header is read."""
    found = [entry for entry in zip_entries(_regular(path)) if entry.filename in (name, f"{name}.npy")]
    if not found:
        raise DataError(f"{path}: it has no array {name!r}, but {', '.join(npz_names(path)[:8]) or 'none at all'}")
    entry, where = found[0], f"{path}:{found[0].filename}"
    with _member(path, entry) as stream:
        shape, fortran, dtype, length = _header(stream, where)
    if not shape:
        raise DataError(f"{where}: it must have rows, got a single number")
    if fortran and len(shape) > 1:
        raise DataError(f"{where}: its columns lie in a row (Fortran order); save np.ascontiguousarray of it")
    needed, held = math.prod(shape) * dtype.itemsize, entry.file_size - length
    if needed != held:
        raise DataError(
            f"{where}: an array of {dtype} {shape} takes {needed:,} bytes, and {held:,} are there; copy it again"
        )
    array = NpzArray(path, entry, shape, dtype)
    if array.row_bytes > MAX_ROW:
        raise DataError(f"{where}: one row of {shape} takes {array.row_bytes:,} bytes, more than {MAX_ROW:,} allowed")
    return array


@contextmanager
def _member(path: Path, entry: zipfile.ZipInfo) -> Iterator[BinaryIO]:
    with zipfile.ZipFile(path) as archive, open_zip_member(path, archive, entry, LIMITS) as stream:
        yield stream


def _header(stream: BinaryIO, where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, Fortran order, dtype and length of the header, with the stream at the first number."""
    try:
        version = npy_format.read_magic(stream)
        readers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"version {version}")
        shape, fortran, dtype = readers[version](stream)
    except DataError:
        raise
    except Exception as error:  # a damaged header is Python source, and fails as that does
        what = " ".join(str(error).split())[:100] or type(error).__name__
        raise DataError(f"{where}: not an array that numpy saved, or a damaged one ({what}); save it again") from error
    if dtype.kind not in "biufcSU" or not dtype.itemsize:
        raise DataError(f"{where}: its dtype must be numbers or text, got {dtype}; save it as such")
    if any(n < 0 for n in shape):
        raise DataError(f"{where}: its shape {shape} has a negative axis; save it again")
    return shape, fortran, dtype, stream.tell()


def _fill(stream: BinaryIO, block: NDArray[Any], where: str) -> None:
    space = block.reshape(-1).view(np.uint8).data
    done = 0
    while done < len(space):
        got = stream.readinto(space[done:])  # type: ignore[attr-defined]
        if not got:
            raise DataError(f"{where}: it ends before its last row; copy it again")
        done += got


def _regular(path: Path) -> Path:
    if not path.is_file():
        raise DataError(f"{path}: no such file, or not a regular one; name an npz file")
    return path
