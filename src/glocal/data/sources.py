"""Where the pixels come from: arrays, files, or the members of a zip.  Every source reads row i from any thread."""

from __future__ import annotations

import os
import threading
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from glocal.data.archives import Limits, oversized
from glocal_runtime.images import ArraySource, Pixels, UnusableImage, decode

__all__ = ["ArraySource", "FileSource", "ImageSource", "ZipSource"]

PICTURE_LIMITS = Limits(member=512 << 20)  # bytes unpacked: twice the largest picture that may be decoded


class ImageSource(Protocol):
    """n pictures in the order somebody packed them."""

    def __len__(self) -> int: ...

    def read(self, i: int) -> Pixels:
        """Pixels (H, W, 3) of picture i, the caller's own to change; UnusableImage when there are none."""
        ...

    def where(self, i: int) -> str:
        """What a person would look for to find picture i."""
        ...

    def stamp(self, i: int) -> str | None:
        """A text that changes whenever picture i may have changed; None when that cannot be told cheaply."""
        ...


class FileSource:
    """One file per picture."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, i: int) -> Pixels:
        return decode(self._paths[i])

    def where(self, i: int) -> str:
        return str(self._paths[i])

    def stamp(self, i: int) -> str | None:
        try:
            found = self._paths[i].stat()
        except OSError:
            return None
        return f"{self._paths[i].absolute()}|{_stat_stamp(found)}"


class ZipSource:
    """Members of a zip file that ``zip_entries`` let pass.  One handle per process: a forked copy opens its own.

    ``zipfile`` itself locks every read of a shared handle, so threads need nothing more.
    """

    def __init__(self, path: Path, members: Sequence[zipfile.ZipInfo]) -> None:
        self._path = path
        self._members = tuple(members)
        self._archive_stamp = _stat_stamp(path.stat())
        self._lock = threading.Lock()
        self._handle: zipfile.ZipFile | None = None
        self._handle_of = -1  # process that opened the handle: forked processes would share one file position

    def __len__(self) -> int:
        return len(self._members)

    def read(self, i: int) -> Pixels:
        self._check_size(i)
        try:
            data = self._archive().read(self._members[i])  # never more bytes than the size checked above
        except MemoryError:
            raise UnusableImage(self.where(i), "not enough memory to unpack it; make it smaller") from None
        except (OSError, RuntimeError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise UnusableImage(self.where(i), f"the zip entry is damaged ({error}); pack it again") from error
        return decode(data, name=self.where(i))

    def where(self, i: int) -> str:
        return f"{self._path}:{self._members[i].filename}"

    def stamp(self, i: int) -> str | None:
        return f"{self._members[i].filename}|{self._members[i].CRC:08x}|{self._archive_stamp}"

    def _check_size(self, i: int) -> None:
        """Judge a member by what the zip's directory says of it, before a byte is unpacked."""
        reason = oversized(self._members[i].file_size, self._members[i].compress_size, PICTURE_LIMITS)
        if reason is not None:
            raise UnusableImage(self.where(i), f"the zip entry {reason}; leave it out or make it smaller")

    def _archive(self) -> zipfile.ZipFile:
        with self._lock:
            if self._handle is None or self._handle_of != os.getpid():
                self._handle = zipfile.ZipFile(self._path)
                self._handle_of = os.getpid()
            return self._handle

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_handle": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


def _stat_stamp(found: os.stat_result) -> str:
    """Size and times can be set back after a change; the time of the change itself and a new file's number cannot."""
    return f"{found.st_size}|{found.st_ino}|{found.st_ctime_ns}|{found.st_mtime_ns}"
