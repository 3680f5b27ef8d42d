"""Pickles and npz files, one or two per split, and CIFAR-100's own batches.  Only labels stay in memory.

Pictures are an array (n, H, W, 3), (n, 3, H, W) or (n, 3 * side * side), or a list of arrays or of encoded pictures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.common.errors import DataError
from glocal.research.data.npz import npz_names, open_npz_array
from glocal.research.data.packings.content import (
    SPLITS,
    WHOLE,
    Content,
    Part,
    Releasing,
    common_side,
    joined,
    label_text,
    labels_text,
    split_of,
    text_keys,
)
from glocal.research.data.packings.tree import Tree
from glocal.research.data.pickles import read_pickle
from glocal.research.data.prepared_writer import Sample
from glocal.research.data.splits import CIFAR100

_SUFFIXES = (".pkl", ".pickle", ".npz")
_EXTRA = ("train_phase_val", "train_phase_test")  # further pictures of training classes, in no published split
_WORDS = {
    "cache-pickle": "one pickle per split (image_data, class_dict)",
    "pickle": "one pickle per split (data, labels)",
    "array": "one npz per split",
    "png": "one pickle of encoded pictures per split and one of labels",
}
_BETTER = ("array", "cache-pickle", "pickle", "png")  # which to take when one folder has the same split twice
_PICTURES = ("image_data", "images", "data", "features")
_LABELS = ("labels", "fine_labels", "targets", "label", "label_specific")


def cifar100_batches(tree: Tree) -> Content | None:
    """``cifar-100-python/{train,test,meta}``: both files together, because the few-shot sets divide by class."""
    if not {"train", "test"} <= set(tree.names):
        return None
    parts = []
    for file in (open_array_file(tree, name) for name in ("train", "test")):
        if file.kind is None or file.labels is None:
            raise DataError(f"{tree.where(file.name)}: a batch of CIFAR-100 must hold data and fine_labels")
        if bad := next((label for label in file.labels if not label.isdigit() or int(label) >= len(CIFAR100)), None):
            raise DataError(f"{tree.where(file.name)}: a fine label must be in 0..99, got {bad!r}")
        parts.append(file.part(file.labels))
    names = {str(i): name for i, name in enumerate(CIFAR100)}
    if "meta" in tree.names:
        with tree.local("meta") as path:
            content = text_keys(read_pickle(path, name=tree.where("meta")), where=tree.where("meta"))
        if tuple(labels_text(content.get("fine_label_names"), tree.where("meta"))) != CIFAR100:
            raise DataError(
                f"{tree.where('meta')}: fine_label_names must be the 100 classes of CIFAR-100 in their order"
            )
    return Content("CIFAR-100's own batches (train, test, meta)", {WHOLE: joined(parts)}, "batches", 32, {WHOLE: names})


def arrays(tree: Tree) -> Content | None:
    """``<any name><split>.{pickle,pkl,npz}``, with labels inside or in ``<split>_labels.pkl``."""
    files = [name for name in tree.names if name.lower().endswith(_SUFFIXES)]
    ignored = [name for name in files if any(extra in name.lower() for extra in _EXTRA)]
    files = [name for name in files if name not in ignored]
    divided = {split_of(name) for name in files} - {None}
    if not files or (tree.pictures and len(divided) < 2):
        return None
    taken = {name for name in files if split_of(name) is not None} if divided else set(files)
    by_split: dict[str, list[ArrayFile]] = {}
    for name in sorted(taken):
        by_split.setdefault(split_of(name) or WHOLE, []).append(open_array_file(tree, name))
    chosen = {split: _chosen(tree, split, by_split[split]) for split in (*SPLITS, WHOLE) if split in by_split}
    parts = {split: file.part(file.labels or []) for split, file in chosen.items()}
    kinds, sides = {file.kind for file in chosen.values()}, {file.side for file in chosen.values()}
    kind = str(next(each for each in _BETTER if each in kinds))
    words = " and ".join(_WORDS[each] for each in _BETTER if each in kinds)
    if WHOLE in chosen:
        words = words.replace(" per split", "")
    if ignored:
        words += "; the pickles train_phase_val and train_phase_test belong to no published split and were left out"
    names = {split: file.names for split, file in chosen.items() if file.names is not None}
    complete = names if len(names) == len(chosen) else None
    return Content(words, parts, kind, sides.pop() if len(sides) == 1 else None, complete)


def _chosen(tree: Tree, split: str, files: list[ArrayFile]) -> ArrayFile:
    """The one file of a split that has pictures, with labels of its own or of the one that has none."""
    pictures = [file for file in files if file.kind is not None]
    labels = [file for file in files if file.kind is None]
    what = f"split {split!r}" if split else "the data set"
    if not pictures:
        raise DataError(f"{tree.path}: {what} has labels ({labels[0].name}) and no pictures; copy its pictures too")
    best = min(pictures, key=lambda file: _BETTER.index(str(file.kind)))
    rivals = [file for file in pictures if file.kind == best.kind and file is not best]
    if rivals:
        raise DataError(f"{tree.path}: {best.name} and {rivals[0].name} both hold pictures of {what}; move one away")
    if best.labels is not None:
        return best
    if len(labels) != 1:
        raise DataError(f"{tree.path}: the pictures in {best.name} need one file of labels, found {len(labels)}")
    return replace(best, labels=labels[0].labels, names=labels[0].names)


@dataclass(frozen=True)
class ArrayFile:
    """What one file holds."""

    tree: Tree
    name: str
    kind: str | None  # "pickle", "cache-pickle", "array" or "png"; None when it has no pictures
    n: int  # pictures, or labels when there are no pictures
    labels: list[str] | None
    names: Mapping[str, str] | None = None  # label -> the name that the file gives beside it
    side: int | None = None

    def part(self, labels: list[str]) -> Part:
        """The pictures with labels, their own or those of another file."""
        if self.n != len(labels):
            raise DataError(
                f"{self.tree.where(self.name)}: every picture needs one label, but there are {self.n:,} pictures and "
                f"{len(labels):,} labels; get the files that belong together"
            )

        def samples(wanted: Collection[str]) -> Iterator[Sample]:
            with self.tree.local(self.name) as path:
                pictures = _npz_pictures(path) if self.kind == "array" else _pickled_pictures(path)
                for i, (label, picture) in enumerate(zip(labels, pictures, strict=True)):
                    if label in wanted:
                        where = f"{self.tree.where(self.name)}[{i}]"
                        yield Sample(label, _picture(picture, where), where)

        return Part(Counter(labels), samples)


def open_array_file(tree: Tree, name: str) -> ArrayFile:
    """Look into a pickle or an npz."""
    with tree.local(name) as path:
        if name.lower().endswith(".npz"):
            return _open_npz(tree, name, path)
        return _open_pickle(tree, name, read_pickle(path, name=tree.where(name)))


def _open_npz(tree: Tree, name: str, path: Path) -> ArrayFile:
    where, arrays = tree.where(name), npz_names(path)
    pictures = next((each for each in _PICTURES if each in arrays), None)
    if pictures is None:
        raise DataError(f"{where}: pictures must be called images or features, it has {', '.join(arrays) or 'nothing'}")
    array = open_npz_array(path, pictures)
    _check_array(array.shape, array.dtype, where)
    label_array = next((each for each in _LABELS if each in arrays), None)
    labels = None if label_array is None else labels_text(open_npz_array(path, label_array).read(), where)
    return ArrayFile(tree, name, "array", len(array), labels, side=_side(array.shape))


def _npz_pictures(path: Path) -> Iterator[Any]:
    name = next(each for each in _PICTURES if each in npz_names(path))
    for block in open_npz_array(path, name).blocks():
        yield from _as_pictures(block)


def _open_pickle(tree: Tree, name: str, value: Any) -> ArrayFile:
    where = tree.where(name)
    if not isinstance(value, Mapping):
        pictures = _pictures_of(value, where)
        return ArrayFile(tree, name, _kind(pictures), len(pictures), None, side=_side_of(pictures, where))
    content = text_keys(value, where=where)
    key = next((each for each in _PICTURES if each in content), None)
    if key is None:
        labels = _labels_in(content, where)
        if labels is None:
            raise DataError(
                f"{where}: a pickle must hold pictures (data or image_data) or labels (labels or label_specific), "
                f"got {', '.join([*content][:6]) or 'an empty dict'}"
            )
        return ArrayFile(tree, name, None, len(labels), labels, _names_in(content, where))
    pictures = _pictures_of(content[key], where)
    if "class_dict" in content:
        labels = _by_class(content["class_dict"], len(pictures), where)
        return ArrayFile(tree, name, "cache-pickle", len(pictures), labels, side=_side_of(pictures, where))
    labels = _labels_in(content, where)
    names = _names_in(content, where)
    return ArrayFile(tree, name, _kind(pictures), len(pictures), labels, names, _side_of(pictures, where))


def _pickled_pictures(path: Path) -> Iterator[Any]:
    value = read_pickle(path)
    if isinstance(value, Mapping):
        content = text_keys(value, where=str(path))
        value = content[next(each for each in _PICTURES if each in content)]
    pages = Releasing(value if isinstance(value, np.ndarray) else next(iter(value), None))
    for picture in _as_pictures(value):
        yield picture
        pages.took(getattr(picture, "nbytes", 0))


def _labels_in(content: Mapping[str, Any], where: str) -> list[str] | None:
    key = next((each for each in _LABELS if each in content), None)
    return None if key is None else labels_text(content[key], where)


def _names_in(content: Mapping[str, Any], where: str) -> dict[str, str] | None:
    """Label -> name, from a dict of names or a list of them."""
    if "catname2label" in content:
        pairs = text_keys(content["catname2label"], where=where)
        return {label_text(label, where): name for name, label in pairs.items()}
    if "label_specific_str" not in content:
        return None
    return {str(i): name for i, name in enumerate(labels_text(content["label_specific_str"], where))} or None


def _by_class(class_dict: Any, n: int, where: str) -> list[str]:
    """One label per picture from a dict of each class's rows."""
    labels: list[str | None] = [None] * n
    for name, rows in text_keys(class_dict, where=where).items():
        for row in rows if isinstance(rows, list | tuple | np.ndarray) else [rows]:
            if isinstance(row, bool) or not isinstance(row, int | np.integer) or not 0 <= row < n:
                raise DataError(f"{where}: class {name!r} must list rows in 0..{n - 1}, got {row!r}")
            if labels[row] is not None:
                raise DataError(f"{where}: picture {row} is in class {labels[row]!r} and again in {name!r}")
            labels[row] = name
    if None in labels:
        raise DataError(f"{where}: every picture needs a class, but picture {labels.index(None)} has none")
    return [label for label in labels if label is not None]


def _pictures_of(value: Any, where: str) -> Any:
    """An array of pixels, or a list of pictures, that has been looked at."""
    if isinstance(value, np.ndarray):
        _check_array(value.shape, value.dtype, where)
        return value
    if not isinstance(value, list | tuple) or not len(value):
        raise DataError(f"{where}: pictures must be an array or a list of at least one, got a {type(value).__name__}")
    _picture(value[0], f"{where}[0]")
    return value


def _check_array(shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> None:
    planes = len(shape) == 2 and _planes_side(shape[1]) is not None
    colour = len(shape) == 4 and 3 in (shape[3], shape[1])
    if dtype != np.uint8 or not (planes or colour) or not shape[0]:
        raise DataError(
            f"{where}: pictures must be an array of uint8 (n, H, W, 3) with n > 0, got {dtype} {shape}; "
            "features of a network are not pictures"
        )


def _planes_side(length: int) -> int | None:
    """The side of a square picture kept as three planes one after the other."""
    side = math.isqrt(length // 3)
    return side if side >= 8 and 3 * side * side == length else None


def _as_pictures(value: Any) -> Any:
    """Rows of three planes as (3, side, side); everything else as it is."""
    side = _planes_side(value.shape[1]) if isinstance(value, np.ndarray) and value.ndim == 2 else None
    return value if side is None else value.reshape(-1, 3, side, side)


def _picture(value: Any, where: str) -> NDArray[np.uint8] | bytes:
    """Pixels (H, W, 3), or the bytes of an encoded picture: bytes in any spelling, or an array of uint8."""
    if not isinstance(value, np.ndarray) or value.ndim < 3:
        if isinstance(value, np.ndarray) and value.dtype in (np.uint8, np.int8):
            return value.tobytes()
        if isinstance(value, bytes | memoryview):
            return bytes(value)
        raise DataError(f"{where}: it must hold bytes, got a {type(value).__name__}")
    return value.transpose(1, 2, 0) if value.shape[0] == 3 and value.shape[-1] != 3 else value


def _kind(pictures: Any) -> str:
    return "png" if isinstance(_picture(_as_pictures(pictures)[0], ""), bytes) else "pickle"


def _side(shape: tuple[int, ...]) -> int | None:
    if len(shape) == 2:
        return _planes_side(shape[1])
    height, width = shape[1:3] if shape[3] == 3 else shape[2:4]
    return height if height == width else None


def _side_of(pictures: Any, where: str) -> int | None:
    return common_side([_picture(each, f"{where}[{i}]") for i, each in enumerate(_as_pictures(pictures)[:4])])
