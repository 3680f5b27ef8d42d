"""Groups of unknown photos as folders: ``01/`` the largest, ``singles/``, a contact sheet, and ``groups.csv``."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from PIL import Image, ImageDraw

from glocal.bulk.results import ODD_NAMES
from glocal.common.errors import DataError
from glocal.common.files import make_folder, or_not_written, sync
from glocal.common.words import counted
from glocal.recognizer.photos.images import UnusableImage, decode
from glocal.recognizer.prediction import Prediction

SINGLES, TABLE, SHEET = "singles", "groups.csv", "sheet.jpg"
COLUMNS = ("path", "group", "file", "nearest", "open_score")
CELL, GAP, LINE = 112, 6, 20  # pixels
ACROSS, DOWN = 10, 100  # photos of a group, and groups, on the sheet


def write_groups(groups: Sequence[Sequence[Prediction]], out: Path, *, link: bool = False) -> list[str]:
    """Copies, or links, in a new folder, which is there when all is in it; the names of the groups' folders."""
    together = [some for some in groups if len(some) > 1]
    digits = max(2, len(str(len(together))))
    names = [f"{i:0{digits}d}" for i in range(1, len(together) + 1)]
    filed = [*zip(names, together, strict=True), (SINGLES, [some[0] for some in groups if len(some) == 1])]
    partial = out.with_name(f".{uuid4().hex}.partial")
    try:
        with or_not_written(out, "free some space or choose another place"):
            make_folder(partial)
            rows = [row for name, some in filed for row in _put(some, partial, name, link=link)]
            with (partial / TABLE).open("w", encoding="utf-8", errors=ODD_NAMES, newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerows([COLUMNS, *rows])
            if together:
                contact_sheet(dict(filed[:-1])).save(partial / SHEET, quality=90)
            sync(partial)
            with suppress(FileNotFoundError):
                out.rmdir()  # an empty one may be there
            os.rename(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return names


def _put(photos: Sequence[Prediction], root: Path, name: str, *, link: bool) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    taken: set[str] = set()
    for photo in photos:
        source = Path(photo.path)
        free, n = source.name, 1
        while free.casefold() in taken:
            n += 1
            free = f"{source.stem}-{n}{source.suffix}"
        taken.add(free.casefold())
        make_folder(root / name)
        if link:
            (root / name / free).symlink_to(source.resolve())
        else:
            shutil.copy2(source, root / name / free)
        rows.append((photo.path, name, f"{name}/{free}", photo.nearest, f"{photo.open_score:.6g}"))
    return rows


def contact_sheet(groups: dict[str, Sequence[Prediction]]) -> Image.Image:
    """A row for each of the largest groups, with its number and the first of its photos."""
    shown = list(groups.items())[:DOWN]
    across = max(min(len(some), ACROSS) for _, some in shown)
    sheet = Image.new("RGB", (GAP + across * (CELL + GAP), len(shown) * (CELL + LINE + GAP)), "white")
    draw = ImageDraw.Draw(sheet)
    for row, (name, some) in enumerate(shown):
        top = row * (CELL + LINE + GAP)
        draw.text((GAP, top + 4), f"{name}: {counted(len(some), 'photo')}", "black")
        for column, photo in enumerate(some[:ACROSS]):
            with suppress(UnusableImage, OSError):  # it went meanwhile: its place stays empty
                small = Image.fromarray(decode(Path(photo.path)))
                small.thumbnail((CELL, CELL))
                sheet.paste(small, (GAP + column * (CELL + GAP), top + LINE))
    return sheet


def check_new(out: Path) -> None:
    """Refuse a folder that holds something: groups of two runs would mix."""
    if os.path.lexists(out) and not (out.is_dir() and not out.is_symlink() and not any(out.iterdir())):
        raise DataError(f"{out} is there already; delete it or choose another folder for --out", code="file-exists")
