"""Photos by class, from a folder, a zip or a mapping, as sources that are not opened yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image

from glocal.data.images import IMAGE_SUFFIXES
from glocal.data.layouts import Listing, list_folder, list_zip
from glocal.errors import DataError
from glocal.recognizer.eye import Image_, Source, as_source
from glocal.recognizer.naming import check_class_name, check_distinct
from glocal.recognizer.walk import walk

Photos: TypeAlias = "Iterable[Image_] | Image_"
Labelled: TypeAlias = "str | Path | Mapping[str, Photos]"


def labelled_sources(photos: Labelled, *, check_names: bool = True) -> dict[str, list[Source]]:
    """``folder/<class>/**/picture``, the same in a zip, or a mapping of class names to photos; classes by name."""
    if isinstance(photos, Mapping):
        found = {str(name): sources_of(some, f"{name}/") for name, some in photos.items()}
    else:
        found = _listed(Path(photos))
    for name, some in found.items():
        if not some:
            raise DataError(f"class {name!r} has no photo; give at least one, or leave the class out")
    if not found:
        raise DataError("there is no class; give at least one class with at least one photo")
    if not check_names:
        return found
    check_distinct(clean := [check_class_name(name) for name in found])
    return dict(zip(clean, found.values(), strict=True))


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


def nested_folders(photos: Labelled) -> dict[str, list[str]]:
    """Class folders that hold folders and no photo, with the names of these: perhaps they are the real classes."""
    if isinstance(photos, Mapping) or not Path(photos).is_dir():
        return {}
    found = {}
    for folder in sorted(Path(photos).iterdir()):
        if not folder.is_dir() or folder.name.startswith("."):
            continue
        inside = list(folder.iterdir())
        below = sorted(each.name for each in inside if each.is_dir() and not each.name.startswith("."))
        if len(below) > 1 and not any(each.suffix.lower() in IMAGE_SUFFIXES for each in inside):
            found[folder.name] = below
    return found


def _listed(path: Path) -> dict[str, list[Source]]:
    listing: Listing = list_zip(path) if path.is_file() and path.suffix.lower() == ".zip" else list_folder(path)
    found: dict[str, list[Source]] = {}
    for i, name in enumerate(listing.class_of):
        found.setdefault(name, []).append(Source(listing.source.where(i), partial(listing.source.read, i)))
    return dict(sorted(found.items()))
