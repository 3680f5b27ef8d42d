"""The contact sheet: the right pictures in the right places, names that can be read, whole files only."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image

from glocal.research.data.dataset import ClassDataset
from glocal.research.report.contact_sheet import CELL, GAP, MARGIN, NAME, TITLE, contact_sheet
from refusal import refused

TOP, ROW = MARGIN + round(1.5 * TITLE), round(1.5 * NAME) + CELL + 2 * GAP
COLOURS = {"red": (200, 0, 0), "green": (0, 200, 0), "blue": (0, 0, 200), "grey": (99, 99, 99)}


def plain(names: dict[str, tuple[int, int, int]], *, shape: tuple[int, int] = (32, 32), each: int = 3) -> ClassDataset:
    """Pictures of one colour per class, a little lighter from one to the next."""
    images = [np.full((*shape, 3), colour, np.uint8) + np.uint8(i) for colour in names.values() for i in range(each)]
    return ClassDataset.from_arrays(np.stack(images), [name for name in names for _ in range(each)], name="colours")


def pixel(sheet: Image.Image, row: int, column: int, *, down: int = CELL // 2) -> tuple[int, ...]:
    """The middle of a cell."""
    x, y = MARGIN + column * (CELL + GAP) + CELL // 2, TOP + row * ROW + round(1.5 * NAME) + down
    return sheet.getpixel((x, y))


def ink(sheet: Image.Image, top: int, height: int) -> int:
    """Dark pixels in a band over the whole width."""
    band = np.asarray(sheet.crop((0, top, sheet.width, top + height)).convert("L"))
    return int((band < 100).sum())


def test_rows_are_classes_and_their_pictures(tmp_path: Path) -> None:
    names = contact_sheet(plain(COLOURS), tmp_path / "sheet.png", classes=3, per_class=2)
    assert names == sorted(names)
    assert len(names) == 3
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size[1] == 2 * MARGIN + round(1.5 * TITLE) + 3 * ROW
        for row, name in enumerate(names):
            near = [int(np.abs(np.subtract(pixel(sheet, row, column), COLOURS[name])).max()) for column in range(2)]
            assert max(near) < 3, name
            assert ink(sheet, TOP + row * ROW, round(1.5 * NAME)) > 50, "the name above"
    assert list(tmp_path.iterdir()) == [tmp_path / "sheet.png"]
    assert len(contact_sheet(plain(COLOURS), tmp_path / "sheet.png")) == 4, "all, where there are fewer than five"


def test_names_of_every_kind_fit(tmp_path: Path) -> None:
    names = {"x" * 500: (1, 2, 3), "кот": (4, 5, 6), os.fsdecode(b"caf\xe9"): (7, 8, 9), "two\nlines": (9, 9, 9)}
    contact_sheet(plain(names, each=9), tmp_path / "sheet.png", classes=4, per_class=9)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width == 2 * MARGIN + 9 * (CELL + GAP) - GAP
        right = np.asarray(sheet.crop((sheet.width - MARGIN, 0, *sheet.size)))
        assert (right == 255).all(), "nothing runs over the margin"


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    data, path = plain(COLOURS), tmp_path / "sheet.png"
    with refused("data", "4 classes", "got 5"):
        contact_sheet(data, path, classes=5)
    for per_class in (2000, 0):
        with refused("data", f"4 classes with {per_class} each"):
            contact_sheet(data, path, classes=4, per_class=per_class)
    assert list(tmp_path.iterdir()) == []
