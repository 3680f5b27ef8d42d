"""A zip whose members lie in it as they are: what it takes in memory is no more than what it takes on the disk."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from glocal.common.errors import DataError
from glocal.common.files import or_not_written, replacing, still_free

LONG_AGO = (1980, 1, 1, 0, 0, 0)  # no time of day in the file: the same content is the same bytes
FAILURES = (OSError, EOFError, RuntimeError, ValueError, LookupError, TypeError, zipfile.BadZipFile)
LONGEST = 300  # characters of what is wrong with a file: it may quote the file


def write_stored(path: Path, members: Mapping[str, bytes], *, new: bool = False) -> None:
    """In one move; with ``new`` over no other file."""
    with (
        or_not_written(path, "free some space or choose another place"),
        replacing(path, is_current=still_free(path) if new else None) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive,
    ):
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, LONG_AGO), data)


def read_stored(path: Path) -> Callable[[str], bytes]:
    """What reads a member; ValueError for a zip that is packed, and could grow."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        packed = any(each.compress_type or each.file_size != each.compress_size for each in entries)
        if packed or sum(each.file_size for each in entries) > path.stat().st_size:
            raise ValueError("it was packed by another program")

    def read(name: str) -> bytes:
        with zipfile.ZipFile(path) as archive:
            return archive.read(name)

    return read


def holds(path: str | Path, name: str) -> bool:
    """Whether a file is a zip with that member."""
    try:
        if not Path(path).is_file():  # opening a named pipe would wait for ever
            return False
        with zipfile.ZipFile(path) as archive:
            return name in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is damaged: {str(error)[:LONGEST]}; copy or make it again", code="damaged-file")
