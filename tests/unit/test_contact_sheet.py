"""The contact sheet: the right pictures in the right places, names of every kind, whole files only."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image

from glocal.research.data.dataset import ClassDataset
from glocal.research.report.contact_sheet import CELL, GAP, LINE, contact_sheet
from refusal import refused

COLOURS = {
    "red": (200, 0, 0),
    "кот": (0, 200, 0),
    os.fsdecode(b"caf\xe9"): (0, 0, 200),
    "two\nlines" + "x" * 500: (99, 99, 99),
}


def test_rows_are_classes_with_their_names_and_pictures(tmp_path: Path) -> None:
    images = [np.full((32, 32, 3), colour, np.uint8) for colour in COLOURS.values() for _ in range(3)]
    data = ClassDataset.from_arrays(np.stack(images), [name for name in COLOURS for _ in range(3)], name="colours")
    path = tmp_path / "sheet.png"
    names = contact_sheet(data, path, per_class=2)
    assert names == sorted(COLOURS), "all, where there are fewer than five"
    with Image.open(path) as sheet:
        for row, name in enumerate(names):
            top = row * (LINE + CELL + GAP)
            cells = [sheet.getpixel((GAP + k * (CELL + GAP) + CELL // 2, top + LINE + CELL // 2)) for k in range(3)]
            assert cells == [COLOURS[name], COLOURS[name], (255, 255, 255)]
            assert (np.asarray(sheet.crop((0, top, sheet.width, top + LINE)).convert("L")) < 100).sum() > 50
    assert list(tmp_path.iterdir()) == [path]
    with refused("data", "4 classes", "got 5"):
        contact_sheet(data, path, classes=5)
    for per_class in (2000, 0):
        with refused("data", f"4 classes with {per_class} each"):
            contact_sheet(data, path, classes=4, per_class=per_class)
