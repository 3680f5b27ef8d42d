"""Pictures below folders, found as they are needed and always in the same order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from glocal_runtime.errors import DataError
from glocal_runtime.images import IMAGE_SUFFIXES


def walk(inputs: Iterable[str | Path]) -> Iterator[Path]:
    """Files as they are named; of a folder every picture in and below it, by name, links to folders not followed.

    One folder's names are in memory at a time, not those of the whole tree.  A folder without any picture is refused:
    whoever names it expects answers.
    """
    for given in inputs:
        path = Path(given)
        if not path.is_dir():
            yield path
            continue
        empty = True
        for found in _below(path):
            empty = False
            yield found
        if empty:
            raise DataError(f"{path}: no picture in this folder or below it; name a folder that holds some")


def _below(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                (entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if entry.name[:1] != "."
            )
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be listed ({error.strerror}); check its permissions") from error
    for name, is_folder in names:
        if is_folder:
            yield from _below(folder / name)
        elif os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES:
            yield folder / name
