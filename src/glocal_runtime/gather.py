"""Photos as sources that are not opened yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image

from glocal_runtime.errors import DataError
from glocal_runtime.eye import Image_, Source, as_source
from glocal_runtime.naming import check_class_name, check_distinct
from glocal_runtime.walk import walk

Photos: TypeAlias = "Iterable[Image_] | Image_"
Labelled: TypeAlias = "str | Path | Mapping[str, Photos]"


def named_classes(found: Mapping[str, list[Source]], *, check_names: bool = True) -> dict[str, list[Source]]:
    """The classes under names that are allowed, each with a photo at least."""
    for name, some in found.items():
        if not some:
            raise DataError(f"class {name!r} has no photo; give at least one, or leave the class out")
    if not found:
        raise DataError("there is no class; give at least one class with at least one photo")
    if not check_names:
        return dict(found)
    check_distinct(clean := [check_class_name(name) for name in found])
    return dict(zip(clean, found.values(), strict=True))


def class_folders(photos: Labelled) -> dict[str, list[Source]]:
    """``folder/<class>/**/picture``, or a mapping of class names to photos."""
    if isinstance(photos, Mapping):
        return named_classes(sources_by_name(photos))
    if not Path(photos).is_dir():
        raise DataError(f"{photos}: there is no such folder; give one with a folder of photos per class")
    inside = sorted(each for each in Path(photos).iterdir() if each.is_dir() and not each.name.startswith("."))
    return named_classes({each.name: sources_of(each) for each in inside})


def sources_by_name(photos: Mapping[str, Photos]) -> dict[str, list[Source]]:
    return {str(name): sources_of(some, f"{name}/") for name, some in photos.items()}


def sources_of(photos: Photos, prefix: str = "") -> list[Source]:
    """One photo, several, or all below a folder."""
    if isinstance(photos, str | Path):
        return [as_source(path) for path in walk([photos])]
    if isinstance(photos, bytes | Source | Image.Image) or (isinstance(photos, np.ndarray) and photos.ndim < 4):
        photos = [photos]
    found: list[Source] = []
    for i, photo in enumerate(photos):
        if isinstance(photo, str | Path):
            found += sources_of(photo)
        else:
            found.append(as_source(photo, f"{prefix}{i}"))
    return found
