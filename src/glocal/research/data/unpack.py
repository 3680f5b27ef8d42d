"""Zips and tars are unpacked by the standard library before anything in them is read."""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from glocal.common.errors import DataError
from glocal.recognizer.photos.folders import walk

MOST_FILES = 4_000_000  # tieredImageNet as files has 779,165
MOST_BYTES = 256 << 30
MOST_GROWTH = 200  # times the size of the archive; images are packed already ...
GROWTH_FROM = 64 << 20  # ... but few of them may be black
_DAMAGE = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
)


def unpacked(source: Path, home: Path) -> Path:
    """The folder ``source``, or what a zip or tar of that name unpacks to in ``home``; unpacked once."""
    if source.is_dir():
        return source
    if not source.is_file():
        raise DataError(f"{source}: there is no such file or folder; name what the data set is in")
    target = home / f"unpacked-{signature(source)[:16]}"
    if not target.is_dir():
        partial = home / "unpacking"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            with _opened(source) as archive:
                _unpack(archive, partial, source)
        except _DAMAGE as error:
            if isinstance(error, DataError) or getattr(error, "errno", None) is not None:
                raise  # the disk failed, not the archive
            what = " ".join(str(error).split())[:150] or type(error).__name__
            raise DataError(f"{source}: cannot be unpacked ({what}); copy it again, or unpack it yourself") from error
        partial.rename(target)
    return target


def signature(path: Path) -> str:
    """Hash of the names, sizes and times of change of a file, or of all files in a folder."""
    files = (
        [os.path.join(parent, name) for parent, _, names in walk(path) for name in names] if path.is_dir() else [path]
    )
    digest = hashlib.sha256(os.fsencode(path.absolute()))
    for file in files:
        status = os.stat(file) if os.path.exists(file) else os.lstat(file)  # a link that leads nowhere is refused later
        digest.update(os.fsencode(file) + f"\0{status.st_size} {status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _opened(source: Path) -> zipfile.ZipFile | tarfile.TarFile:
    if source.suffix.lower() != ".npz":  # a zip, but of arrays
        if zipfile.is_zipfile(source):
            return zipfile.ZipFile(source)
        if tarfile.is_tarfile(source):
            return tarfile.open(source)
    raise DataError(f"{source}: neither a folder nor a zip or tar; name the folder that the file lies in")


def _unpack(archive: Any, folder: Path, source: Path) -> None:
    folder.mkdir(parents=True)
    if isinstance(archive, zipfile.ZipFile):  # it leaves out "..", drives and links by itself
        for member in _bounded(archive.infolist(), "file_size", source):
            archive.extract(member, folder)
    else:
        for member in _bounded(archive, "size", source):
            archive.extract(member, folder, filter="data")


def _bounded(members: Iterable[Any], size: str, source: Path) -> Iterator[Any]:
    """The members of an archive, until there are too many of them or of their bytes."""
    allowed = min(MOST_BYTES, max(GROWTH_FROM, MOST_GROWTH * source.stat().st_size))
    total = 0
    for count, member in enumerate(members, 1):
        total += getattr(member, size)
        if count > MOST_FILES or total > allowed:
            raise DataError(
                f"{source}: it unpacks to more than {MOST_FILES:,} files or {allowed:,} bytes; unpack it yourself"
            )
        yield member
