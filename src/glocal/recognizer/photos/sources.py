"""Photos before a model sees them: listed below folders, opened, cut to size."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar

import numpy as np
from PIL import Image

from glocal.common.errors import DataError
from glocal.recognizer.photos.boxes import Box, Boxes, Drawn, Regions
from glocal.recognizer.photos.folders import list_classes
from glocal.recognizer.photos.images import (
    ArraySource,
    Pixels,
    Preprocess,
    UnusableImage,
    decode,
    fit,
    is_picture,
    opened,
)
from glocal.recognizer.support import UNKNOWN_NAME, check_class_name, check_distinct, composed, signature

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Source:
    """A picture not yet opened, or one that was opened elsewhere."""

    name: str  # what a person would look for
    read: Callable[[], Pixels]  # (H, W, 3)
    taken: Picture | Unreadable | None = None  # as an encoder sees it, where that is known already
    box: Drawn | None = None  # of a region, which is all of the picture that is looked at


Image_: TypeAlias = "str | Path | bytes | Image.Image | np.ndarray[Any, Any] | Source"
Photos: TypeAlias = "Iterable[Image_] | Image_"
Labelled: TypeAlias = "str | Path | Mapping[str, Photos]"


@dataclass(frozen=True)
class Picture:
    """A picture as the encoder sees it."""

    name: str
    pixels: Pixels  # (size, size, 3)
    digest: str  # sha256 of these pixels
    signature: Pixels  # see support.signature
    region: Region | None = None


@dataclass(frozen=True)
class Region:
    """Which part of a picture a photo is."""

    box: Box
    read: Callable[[], Pixels]  # the whole picture


@dataclass(frozen=True)
class Unreadable:
    """A picture that cannot be used, and why."""

    path: str
    error: str


def as_source(image: Image_, name: str = "(picture)") -> Source:
    """A path, the bytes of a picture file, a Pillow image, or uint8 pixels (H, W, 3) or (H, W)."""
    if isinstance(image, Source):
        return image
    if isinstance(image, str | Path):
        return Source(str(image), partial(decode, Path(image)))
    if isinstance(image, bytes):
        return Source(name, partial(decode, image, name=name))
    if isinstance(image, Image.Image):
        try:  # now, because the caller may go on to its next frame
            pixels = opened(image, name)
        except UnusableImage as bad:
            return Source(name, partial(_raise, bad))
        return Source(name, lambda: pixels)
    if isinstance(image, np.ndarray):
        return Source(name, partial(ArraySource(image[None]).read, 0))
    raise DataError(f"a picture must be a path, bytes, a Pillow image or a uint8 array, got {type(image).__name__}")


def _raise(error: UnusableImage) -> NoReturn:
    raise error


def take(source: Source, preprocess: Preprocess) -> Picture | Unreadable:
    """Decode and cut one picture; what is wrong with it is an answer too, because a folder must not stop at it."""
    taken = source.taken
    if isinstance(taken, Unreadable) or (taken is not None and len(taken.pixels) == preprocess.size):
        return taken
    region = None
    try:
        image = source.read()
        if source.box is not None:
            region = Region(source.box.within(image, source.name), source.read)
            image = region.box.cut(image)
        pixels = fit(image, preprocess)
    except UnusableImage as bad:
        return Unreadable(source.name, bad.reason)
    return Picture(source.name, pixels, hashlib.sha256(pixels.data).hexdigest(), signature(pixels), region)


def made_ahead(
    make: Callable[[T], U], items: Iterable[T], size: int, *, workers: int, ahead: int = 1
) -> Iterator[list[U]]:
    """``make`` of each item, ``size`` of them together and in order, by threads.

    While the caller works on one such batch, ``ahead`` others are made; the input is read only that far.
    """
    waiting: deque[list[Future[U]]] = deque()
    rest = iter(items)
    pool = ThreadPoolExecutor(workers)
    try:
        while True:
            while len(waiting) <= ahead and (some := list(islice(rest, size))):
                waiting.append([pool.submit(make, each) for each in some])
            if not waiting:
                return
            yield [future.result() for future in waiting.popleft()]
    finally:  # also when one fails or the caller stops half way: then nobody needs the rest
        pool.shutdown(cancel_futures=True)


def sources_of(photos: Photos, prefix: str = "") -> list[Source]:
    """One photo, several, or all below a folder."""
    if isinstance(photos, str | Path):
        return [as_source(path) for path in picture_files([photos])]
    if isinstance(photos, bytes | Source | Image.Image) or (isinstance(photos, np.ndarray) and photos.ndim < 4):
        photos = [photos]
    sources: list[Source] = []
    for i, photo in enumerate(photos):
        if isinstance(photo, str | Path):
            sources += sources_of(photo)
        else:
            sources.append(as_source(photo, f"{prefix}{i}"))
    return sources


class LabelledSources(NamedTuple):
    classes: dict[str, list[Source]]
    nested: dict[str, list[str]]  # class folders that hold folders and no photo: perhaps these are the real classes
    loose: Sequence[str]  # names of the pictures beside the class folders


def labelled_sources(photos: Labelled, *, check_names: bool = True) -> LabelledSources:
    """``folder/<class>/**/picture``, the same in a zip, or a mapping of class names to photos; a photo in each.

    Names become composed Unicode, as recognizers keep them: a folder copied from a Mac is found under the typed name.
    ``unknown`` is no class and may be there all the same: it holds pictures of other things.  Without ``check_names``
    they may be any, and two spellings of one name are one class.
    """
    filed: dict[str, list[Source]] = {}
    nested: dict[str, list[str]] = {}
    loose: Sequence[str] = ()
    if isinstance(photos, Mapping):
        filed = {str(name): sources_of(some, f"{name}/") for name, some in photos.items()}
    else:
        listing = list_classes(Path(photos))
        for i, name in enumerate(listing.class_of):
            filed.setdefault(name, []).append(Source(listing.source.where(i), partial(listing.source.read, i)))
        filed = dict(sorted(filed.items()))
        nested = {composed(name): below for name, below in listing.nested.items() if not is_unknown(name)}
        loose = listing.loose
    for name, some in filed.items():
        if not some:
            raise DataError(f"class {name!r} has no photo; give at least one, or leave the class out")
    if not filed:
        raise DataError("there is no class; give at least one class with at least one photo")
    if check_names:
        check_distinct([check_class_name(name) for name in filed if not is_unknown(name)])
    classes: dict[str, list[Source]] = {}
    for name, some in filed.items():
        classes.setdefault(UNKNOWN_NAME if is_unknown(name) else composed(name), []).extend(some)
    return LabelledSources(classes, nested, loose)


def regions_of(sources: Iterable[Source], boxes: Boxes) -> tuple[list[Source], Regions]:
    """A source per box, and what the file and the pictures do not share."""
    pictures = {source.name: source for source in sources}
    regions = boxes.of(pictures)
    return [
        replace(pictures[name], name=f"{name}#{number}", box=box)
        for name, some in regions.boxes.items()
        for number, box in some.items()
    ], regions


def labelled_regions(folder: Path, boxes: Boxes) -> tuple[dict[str, list[Source]], Regions]:
    """Regions by class: by the label of each box, or, in a file without labels, by the class folder of its picture."""
    if boxes.labelled:
        sources, regions = regions_of(sources_of(folder), boxes)
        owner = {source.name: source.box.label for source in sources if source.box is not None}
    else:
        classes = labelled_sources(folder, check_names=False).classes
        sources, regions = regions_of([source for some in classes.values() for source in some], boxes)
        of_picture = {source.name: name for name, some in classes.items() for source in some}
        owner = {source.name: of_picture[source.name.rpartition("#")[0]] for source in sources}
    by_class: dict[str, list[Source]] = {}
    for source in sources:
        by_class.setdefault(owner[source.name], []).append(source)
    return by_class, regions


def is_unknown(name: str) -> bool:
    """Whether a folder holds pictures of no class, by its name."""
    return composed(name).casefold() == UNKNOWN_NAME


def picture_files(inputs: Iterable[str | Path]) -> Iterator[Path]:
    """Files as they are named; of a folder every picture in and below it, by name, links to folders not followed.

    One folder's names are in memory at a time, not those of the whole tree.  A folder without any picture is refused.
    """
    for given in inputs:
        path = Path(given)
        if not path.is_dir():
            yield path
            continue
        empty = True
        for file in _below(path):
            empty = False
            yield file
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
        elif is_picture(name):
            yield folder / name
