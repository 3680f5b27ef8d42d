"""Caltech photos: 100 object classes x 28 photos, for methods on top of a backbone that ImageNet taught.

The pictures are not ours to ship: they are read from the folder ``caltech-photos`` below GLOCAL_DATA, one folder per
class.  Nobody published a class split of it, so it is a rule: class names in the order of the SHA-256 of the name, the
first 60 to train, the next 15 to validate, the last 25 to test.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from glocal.data.dataset import ClassDataset
from glocal_runtime.errors import DataError

NAME = "caltech-photos"
BOUNDS = {"train": (0, 60), "val": (60, 75), "test": (75, 100)}


def caltech_photos(split: str, *, skip_bad: bool = False) -> ClassDataset:
    home = os.environ.get("GLOCAL_DATA")
    if not home or not (Path(home) / NAME).is_dir():
        raise DataError(
            f"{NAME} needs its photos, one folder per class, in a folder {NAME} below GLOCAL_DATA "
            f"({home or 'not set'}); there is none"
        )
    photos = ClassDataset.from_folder(Path(home) / NAME, skip_bad=skip_bad)
    if len(photos.classes) != BOUNDS["test"][1]:
        raise DataError(f"{NAME} has {BOUNDS['test'][1]} classes, but {Path(home) / NAME} has {len(photos.classes)}")
    return photos.subset(ordered(photos.classes)[slice(*BOUNDS[split])], name=f"{NAME}/{split}")


def ordered(names: tuple[str, ...]) -> list[str]:
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
