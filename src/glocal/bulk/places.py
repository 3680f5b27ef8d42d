"""Pictures in folders by answer: copied, linked or moved, each under a name that was free."""

from __future__ import annotations

import os
import shutil
from collections.abc import Container
from enum import StrEnum
from pathlib import Path

from PIL import Image

from glocal.common.errors import DataError
from glocal.common.files import replacing
from glocal.recognizer.photos.boxes import Box
from glocal.recognizer.photos.images import decode

LONGEST = 255  # bytes of a name on usual disks


class Way(StrEnum):
    copy = "copy"
    link = "link"
    move = "move"


def check_apart(photos: Path, out: Path) -> None:
    """Refuse folders that lie in each other: sorted pictures would be new ones."""
    one, other = photos.resolve(), out.resolve()
    if one == other or one in other.parents or other in one.parents:
        raise DataError(f"{out} and {photos} lie in each other; choose a folder beside {photos}")


def free_place(root: Path, label: str, below: Path, taken: Container[str] = ()) -> str:
    """``label/below``, with a number where a picture of that name is there or ``taken``; a region becomes a JPEG."""
    path = Path(_short(label), below)
    ending, region, number = path.suffix.partition("#")
    stem, ending = f"{path.stem}{region}{number}", ".jpg" if region else ending
    place, n = path.with_name(f"{_short(stem, len(ending))}{ending}"), 1
    while str(place) in taken or os.path.lexists(root / place):
        n += 1
        more = f"-{n}{ending}"
        place = path.with_name(f"{_short(stem, len(more))}{more}")
    return str(place)


def _short(name: str, more: int = 0) -> str:
    """Its beginning, where with so many letters more a disk would take it for no name."""
    data = os.fsencode(name)
    return name if len(data) + more <= LONGEST else data[: LONGEST - more].decode("utf-8", "ignore")


def put(source: Path, target: Path, way: Way, box: Box | None = None) -> None:
    """Put a picture, or a region of one, under a free name; a kill leaves nothing there or all of it.

    The source stays: who moves removes it when the answer is on the disk too.
    """
    with replacing(target) as partial:
        if box is not None:
            Image.fromarray(box.cut(decode(source))).save(partial, "JPEG", quality=95)
        elif way is Way.copy:
            shutil.copy2(source, partial)
        else:
            partial.unlink()
            try:
                os.link(
                    source.resolve(), partial
                )  # of a link, what it leads to: its way there may be another from here
            except OSError:  # on another disk a symbolic link will do, which is no move
                shutil.copy2(source, partial) if way is Way.move else partial.symlink_to(source.resolve())
