"""Photos by class, from a folder, a zip or a mapping, as sources that are not opened yet."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from glocal.data.layouts import Listing, list_folder, list_zip
from glocal.recognizer.eye import Source
from glocal_runtime.gather import Labelled, Photos, named_classes, sources_by_name, sources_of
from glocal_runtime.images import IMAGE_SUFFIXES

__all__ = ["Labelled", "Photos", "labelled_sources", "nested_folders", "sources_of"]


def labelled_sources(photos: Labelled, *, check_names: bool = True) -> dict[str, list[Source]]:
    """``folder/<class>/**/picture``, the same in a zip, or a mapping of class names to photos; classes by name."""
    found = sources_by_name(photos) if isinstance(photos, Mapping) else _listed(Path(photos))
    return named_classes(found, check_names=check_names)


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
