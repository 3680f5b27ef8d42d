"""What a form of files holds before anybody says which data set it is."""

from __future__ import annotations

import mmap
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from glocal.common.errors import DataError
from glocal.recognizer.photos.images import UnusableImage, decode
from glocal.research.data.packings.tree import Tree
from glocal.research.data.prepared_writer import Sample

SPLITS = ("train", "val", "test")
WHOLE = ""  # the split of pictures that are not divided
_SPLIT_OF = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_TOO_LARGE = 1 << 63  # for a label; Python refuses to print a number of thousands of digits
_LOOKED_AT = 4  # pictures whose size is looked at
_RELEASE_AFTER = 32 << 20  # bytes read from a memory map before its pages are given back


@dataclass(frozen=True)
class Part:
    """Pictures of one split: how many each class has, and a stream of those of some classes."""

    counts: Mapping[str, int]  # by label as it is written in the files
    samples: Callable[[Collection[str]], Iterator[Sample]]


@dataclass(frozen=True)
class Content:
    words: str
    parts: Mapping[str, Part]  # by split, or WHOLE
    kind: str  # "files", "pickle", "cache-pickle", "array", "png" or "batches"
    side: int | None  # pixels, when the pictures looked at are all squares of one size
    names: Mapping[str, Mapping[str, str]] | None = None  # split -> label -> a name the files give beside it
    key: str = ""  # of files outside the tree


Form: TypeAlias = Callable[[Tree], Content | None]


def split_of(name: str) -> str | None:
    """train, val or test by the last such word in a file's name; None when there is none."""
    words = re.findall(r"(?<![a-z])(train|valid|validation|val|test)(?![a-z])", PurePosixPath(name).name.lower())
    return _SPLIT_OF[words[-1]] if words else None


def split_named(folder: str) -> str | None:
    """The split that a folder or a cell called exactly so means."""
    return _SPLIT_OF.get(folder.lower())


def of_files(tree: Tree, class_of: Mapping[str, str]) -> Part:
    """Part whose pictures are files of the tree."""

    def samples(wanted: Collection[str]) -> Iterator[Sample]:
        names = [name for name, label in class_of.items() if label in wanted]
        for name, picture in tree.read(names):
            yield Sample(class_of[name], picture, tree.where(name))

    return Part(Counter(class_of.values()), samples)


def joined(parts: Sequence[Part]) -> Part:
    """Several parts as one."""
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.counts)
    return Part(counts, lambda wanted: (sample for part in parts for sample in part.samples(wanted)))


def common_side(pictures: Sequence[NDArray[Any] | bytes]) -> int | None:
    """The side of squares of one size; None when they differ or one is no picture."""
    shapes: set[tuple[int, ...]] = set()
    for picture in pictures:
        try:
            shapes.add((decode(picture) if isinstance(picture, bytes) else picture).shape[:2])
        except UnusableImage:
            return None
    (height, width), *others = shapes or {(0, 1)}
    return height if height == width and not others else None


def side_of_files(tree: Tree, names: Collection[str]) -> int | None:
    """``common_side`` of a few pictures at the beginning."""
    first = [*names][:_LOOKED_AT]
    few: list[NDArray[Any] | bytes] = []
    for _, picture in tree.read(first):
        if isinstance(picture, bytes):
            few.append(picture)
        if len(few) == len(first):
            break  # or a tar would be read to its end
    return common_side(few)


def text_keys(mapping: object, *, where: str) -> dict[str, Any]:
    """A dict whose keys are text, whichever Python wrote them."""
    if not isinstance(mapping, Mapping):
        raise DataError(f"{where}: it must hold a dict, got a {type(mapping).__name__}")
    named: dict[str, Any] = {}
    for key, value in mapping.items():
        text = key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else key
        if not isinstance(text, str):
            raise DataError(f"{where}: the keys of its dict must be text, got {key!r}")
        if text in named:
            raise DataError(f"{where}: its dict has the key {text!r} twice, as text and as bytes; keep one of them")
        named[text] = value
    return named


def label_text(label: object, where: str) -> str:
    """A label as text, whichever type it came in."""
    if isinstance(label, bytes):
        return label.decode("utf-8", "backslashreplace")
    if isinstance(label, str):
        return str(label)
    if isinstance(label, bool | np.bool_) or not isinstance(label, int | np.integer | float | np.floating):
        raise DataError(f"{where}: a label must be a name or a whole number, got a {type(label).__name__}")
    number: Any = label
    if not 0 <= number < _TOO_LARGE or int(number) != number:  # the first is false for nan
        told = label if not isinstance(label, int) or abs(label) < _TOO_LARGE else "a number that does not end"
        raise DataError(f"{where}: a label must be a name or a whole number from 0, got {told}")
    return str(int(number))


def labels_text(labels: Any, where: str) -> list[str]:
    """One label per picture, as text."""
    if isinstance(labels, np.ndarray):
        if labels.ndim == 2 and 1 in labels.shape:
            labels = labels.reshape(-1)
        if labels.ndim != 1:
            raise DataError(f"{where}: labels must be one per picture, got an array of {labels.shape}")
    elif not isinstance(labels, list | tuple):
        raise DataError(f"{where}: labels must be a list or an array, got a {type(labels).__name__}")
    return [label_text(label, where) for label in labels]


class Releasing:
    """Gives pages of a memory-mapped pickle back now and then, so that reading it does not fill the memory."""

    def __init__(self, array: Any) -> None:
        while array is not None and not isinstance(array, mmap.mmap):  # down to the map that it looks into
            array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
        self._map: mmap.mmap | None = array
        self._read = 0

    def took(self, n: int) -> None:
        self._read += n
        if self._map is not None and self._read > _RELEASE_AFTER and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
            self._read = 0
