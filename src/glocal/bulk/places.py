"""Pictures in folders by answer: copied, linked or moved, each under a name that was free."""

from __future__ import annotations

import os
import shutil
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

from PIL import Image

from glocal.common.errors import DataError
from glocal.common.files import make_folder, sync
from glocal.recognizer.photos.boxes import Box
from glocal.recognizer.photos.images import decode


class Way(StrEnum):
    copy = "copy"
    link = "link"
    move = "move"


def check_apart(photos: Path, out: Path) -> None:
    """Refuse folders that lie in each other: sorted pictures would be new ones."""
    one, other = photos.resolve(), out.resolve()
    if one == other or one in other.parents or other in one.parents:
        raise DataError(f"{out} and {photos} lie in each other; choose a folder beside {photos}")


def free_place(root: Path, label: str, below: str, taken: set[str], number: str = "") -> str:
    """``label/below``, with a number where a picture of that name is there or ``taken``.

    ``number`` is that of a region, which becomes a JPEG of its own.
    """
    path = Path(label, below)
    if number:
        path = path.with_name(f"{path.stem}#{number}.jpg")
    place, n = path, 1
    while str(place) in taken or os.path.lexists(root / place):
        n += 1
        place = path.with_name(f"{path.stem}-{n}{path.suffix}")
    taken.add(str(place))
    return str(place)


def put(source: Path, target: Path, way: Way, box: Box | None = None) -> None:
    """Put a picture, or a region of one, under a free name; a kill leaves nothing there or all of it.

    The source stays: who moves removes it when the answer is on the disk too.
    """
    make_folder(target.parent)
    partial = target.with_name(f".{uuid4().hex}.partial")
    try:
        if box is not None:
            Image.fromarray(box.cut(decode(source))).save(partial, "JPEG", quality=95)
        elif way is Way.copy or not _linked(source, partial, way):
            shutil.copy2(source, partial)
        if not partial.is_symlink():
            sync(partial)
        os.replace(partial, target)
        sync(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def _linked(source: Path, target: Path, way: Way) -> bool:
    """A second name for the file; on another disk a symbolic link, which is no move."""
    try:
        os.link(source.resolve(), target)  # of a link, what it leads to: its way there may be another from here
    except OSError:
        if way is Way.move:
            return False
        target.symlink_to(source.resolve())
    return True
