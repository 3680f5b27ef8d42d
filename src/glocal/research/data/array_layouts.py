"""The layouts in which images go around as arrays: pickles and npz files per split, and CIFAR-100's own batches."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from glocal.common.errors import DataError
from glocal.recognizer.photos.images import UnusableImage, decode
from glocal.research.data.layouts import SPLIT_OF, SPLITS, WHOLE, Content, Part, common_side
from glocal.research.data.pickles import read_pickle
from glocal.research.data.prepared import Sample
from glocal.research.data.splits import CIFAR100

_EXTRA = ("train_phase_val", "train_phase_test")  # further images of training classes, in no published split
_WORDS = {
    "cache-pickle": "one pickle per split (image_data, class_dict)",
    "pickle": "one pickle per split (data, labels)",
    "array": "one npz per split",
    "png": "one pickle of encoded images per split and one of labels",
}
_IMAGES = ("image_data", "images", "data", "features")
_LABELS = ("labels", "fine_labels", "targets", "label_specific")
_BLOCK = 16 << 20  # bytes of an npz that are read together
_SAMPLED = 4  # images whose size is looked at
_DAMAGE = (OSError, EOFError, ValueError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error)
Image = NDArray[np.uint8] | bytes


@dataclass(frozen=True)
class _File:
    """What one file holds: images, labels or both."""

    path: Path
    kind: str | None = None  # "pickle", "cache-pickle", "array" or "png"; None when it has no images
    n: int = 0  # images
    images: Callable[[], Iterator[Image]] = lambda: iter(())
    labels: list[str] | None = None
    names: Mapping[str, str] | None = None  # label -> the name that the file gives beside it

    def part(self, labels: list[str]) -> Part:
        """The images of the file with one label each."""
        if self.n != len(labels):
            raise DataError(
                f"{self.path}: every image needs one label, but there are {self.n:,} images and {len(labels):,} "
                "labels; get the files that belong together"
            )

        def samples(wanted: Collection[str]) -> Iterator[Sample]:
            with _readable(self.path):
                for i, (label, image) in enumerate(zip(labels, self.images(), strict=True)):
                    if label in wanted:
                        yield Sample(label, image, f"{self.path}[{i}]")

        return Part(Counter(labels), samples)

    def side(self) -> int | None:
        """The side of its images, when the first few are squares of one size."""
        try:
            with _readable(self.path):
                few = [*islice(self.images(), _SAMPLED)]
            return common_side([(decode(each) if isinstance(each, bytes) else each).shape[:2] for each in few])
        except UnusableImage:
            return None


def cifar100_batches(root: Path) -> Content | None:
    """``cifar-100-python/{train,test}``: both together, because the few-shot sets divide by class."""
    paths = [root / "train", root / "test"]
    if not all(path.is_file() for path in paths):
        return None
    parts = []
    for path in paths:
        batch = _text_keys(read_pickle(path), path)
        data, labels = batch.get("data"), _labels(batch.get("fine_labels"), path)
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (3 * 32 * 32,):
            raise DataError(f"{path}: a batch of CIFAR-100 must hold data (n, 3072) in uint8; copy it again")
        if wrong := set(labels) - {str(i) for i in range(len(CIFAR100))}:
            raise DataError(f"{path}: a fine label must be in 0..99, got {min(wrong)!r}; copy it again")
        images = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        file = _File(path, "batches", len(data), partial(iter, images))
        parts.append(file.part([CIFAR100[int(label)] for label in labels]))
    return Content("CIFAR-100's own batches", {WHOLE: joined(parts)}, "batches", 32)


def joined(parts: Collection[Part]) -> Part:
    counts = Counter[str]()
    for part in parts:
        counts.update(part.counts)
    return Part(counts, lambda wanted: (sample for part in parts for sample in part.samples(wanted)))


def arrays(root: Path) -> Content | None:
    """``<any name><split>.{pickle,pkl,npz}``, with labels inside or in ``<split>_labels.pkl``."""
    paths = sorted(path for path in root.iterdir() if path.suffix.lower() in (".pkl", ".pickle", ".npz"))
    taken = [path for path in paths if not any(extra in path.name for extra in _EXTRA)]
    files = {split: [_open(path) for path in taken if _split_of(path) == split] for split in SPLITS}
    chosen = {split: _chosen(root / split, each) for split, each in files.items() if each}
    if not chosen:
        return None
    labels = _named({split: file.labels or [] for split, file in chosen.items()}, chosen)
    sides = {file.side() for file in chosen.values()}
    kinds = [kind for kind in _WORDS if kind in {file.kind for file in chosen.values()}]
    words = " and ".join(_WORDS[kind] for kind in kinds)
    if len(taken) < len(paths):
        words += "; train_phase_val and train_phase_test belong to no published split and were left out"
    parts = {split: file.part(labels[split]) for split, file in chosen.items()}
    return Content(words, parts, kinds[0], sides.pop() if len(sides) == 1 else None)


def _split_of(path: Path) -> str | None:
    """The split by the last such word in the name of a file."""
    words = re.findall(r"(?<![a-z])(train|valid|validation|val|test)(?![a-z])", path.name.lower())
    return SPLIT_OF[words[-1]] if words else None


def _chosen(where: Path, files: list[_File]) -> _File:
    """The one file of a split that has images, with its labels or those of the file that has no images."""
    images = [file for file in files if file.kind is not None]
    labels = [file for file in files if file.kind is None]
    if len(images) != 1:
        raise DataError(f"{where}: a split needs one file of images, and here are {len(images)}; put one of them there")
    if images[0].labels is not None:
        return images[0]
    if len(labels) != 1:
        raise DataError(f"{images[0].path}: it needs one file of labels, and there are {len(labels)}; copy it there")
    return replace(images[0], labels=labels[0].labels, names=labels[0].names)


def _named(labels: dict[str, list[str]], files: Mapping[str, _File]) -> dict[str, list[str]]:
    """Names for labels, where the files give every class a name of its own: ImageNet has two kinds of crane."""
    names = {split: {each: (file.names or {}).get(each) for each in labels[split]} for split, file in files.items()}
    every = [name for each in names.values() for name in each.values()]
    if None in every or len(set(every)) < len(every):
        return labels
    return {split: [str(names[split][label]) for label in each] for split, each in labels.items()}


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except _DAMAGE as error:
        reason = " ".join(str(error).split())[:150] or type(error).__name__
        raise DataError(f"{path}: damaged, or not what it is called ({reason}); copy it again") from error


def _open(path: Path) -> _File:
    if path.suffix.lower() == ".npz":
        with _readable(path):
            return _open_npz(path)
    value = read_pickle(path)
    content = _text_keys(value, path) if isinstance(value, dict) else {"data": value}
    labels = next((_labels(content[key], path) for key in _LABELS if key in content), None)
    names = None
    if "catname2label" in content:
        names = {str(label): name for name, label in _text_keys(content["catname2label"], path).items()}
    elif "label_specific_str" in content:
        names = {str(i): name for i, name in enumerate(_labels(content["label_specific_str"], path))}
    key = next((each for each in _IMAGES if each in content), None)
    if key is None:
        if labels is None:
            raise DataError(f"{path}: it must hold images ({', '.join(_IMAGES)}) or labels; it has {[*content][:6]}")
        return _File(path, labels=labels, names=names)
    images = content[key]
    if isinstance(images, list | tuple) and images:
        return _File(path, "png", len(images), partial(map, partial(_encoded, path), images), labels, names)
    if not isinstance(images, np.ndarray):
        raise DataError(f"{path}: images must be an array or a list, got a {type(images).__name__}")
    _check_pixels(images.shape, images.dtype, path)
    if "class_dict" in content:
        labels = _by_class(_text_keys(content["class_dict"], path), len(images), path)
    kind = "cache-pickle" if "class_dict" in content else "pickle"
    return _File(path, kind, len(images), partial(iter, images), labels, names)


def _open_npz(path: Path) -> _File:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        key = next((each for each in _IMAGES if each in stored.files), None)
        label_key = next((each for each in _LABELS if each in stored.files), None)
        labels = None if label_key is None else _labels(stored[label_key], path)
    if key is None:
        raise DataError(f"{path}: it must hold images ({', '.join(_IMAGES)}); get the npz that has them")
    with _npy(path, key) as (_, shape, dtype):
        _check_pixels(shape, dtype, path)
    return _File(path, "array", shape[0], partial(_rows, path, key), labels)


@contextmanager
def _npy(path: Path, name: str) -> Iterator[tuple[Any, tuple[int, ...], np.dtype[Any]]]:
    """An array of an npz as a stream of its numbers, with their shape and dtype."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as stream:
        read = npy.read_array_header_1_0 if npy.read_magic(stream) == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(stream)
        if fortran:
            raise ValueError("its columns lie in a row; save np.ascontiguousarray of it")
        yield stream, shape, dtype


def _rows(path: Path, name: str) -> Iterator[NDArray[np.uint8]]:
    """The images of an npz by blocks: tieredImageNet's has 9.5 GB."""
    with _npy(path, name) as (stream, shape, _):
        size = int(np.prod(shape[1:]))
        step = max(1, _BLOCK // size)
        for start in range(0, shape[0], step):
            n = min(step, shape[0] - start)
            yield from np.frombuffer(stream.read(n * size), np.uint8).reshape(n, *shape[1:])


def _check_pixels(shape: tuple[int, ...], dtype: np.dtype[Any], path: Path) -> None:
    if (
        dtype != np.uint8
        or len(shape) != 4
        or shape[3] != 3
        or not 0 < int(np.prod(shape[1:])) <= _BLOCK
        or not shape[0]
    ):
        raise DataError(
            f"{path}: images must be an array of uint8 (n, H, W, 3), got {dtype} {shape}; features of a network are "
            "not images"
        )


def _encoded(path: Path, value: Any) -> bytes:
    """The bytes of an encoded image: OpenCV gives them as an array of uint8."""
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim < 3:
        return value.tobytes()
    if not isinstance(value, bytes | memoryview):
        raise DataError(f"{path}: a list of images must hold their files as bytes, got a {type(value).__name__}")
    return bytes(value)


def _labels(values: Any, path: Path) -> list[str]:
    """Names or whole numbers, as text."""
    values = values.reshape(-1).tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(values, list | tuple):
        raise DataError(f"{path}: labels must be a list or an array, got a {type(values).__name__}")
    labels = []
    for value in values:
        value = value.item() if isinstance(value, np.generic) else value
        if type(value) is int and 0 <= value < 1 << 32:
            value = str(value)
        elif isinstance(value, bytes | memoryview):
            value = str(value, "utf-8", "backslashreplace")
        if not isinstance(value, str):
            raise DataError(f"{path}: a label must be a name or a whole number from 0, got a {type(value).__name__}")
        labels.append(value)
    return labels


def _by_class(rows_of: Mapping[str, Any], n: int, path: Path) -> list[str]:
    """One label per image from the rows of each class."""
    labels = [""] * n
    for name, rows in rows_of.items():
        for row in _labels(rows, path):
            if not row.isdigit() or int(row) >= n or labels[int(row)]:
                raise DataError(f"{path}: class {name!r} must list rows of its own in 0..{n - 1}, got {row}")
            labels[int(row)] = name
    if "" in labels:
        raise DataError(f"{path}: image {labels.index('')} is in no class; copy the file again")
    return labels


def _text_keys(value: Any, path: Path) -> dict[str, Any]:
    """A dict whose keys are text, whichever Python wrote them."""
    if not isinstance(value, dict) or not all(isinstance(key, str | bytes) for key in value):
        raise DataError(f"{path}: it must hold a dict with keys of text, got a {type(value).__name__}")
    return {
        str(key, "utf-8", "backslashreplace") if isinstance(key, bytes) else key: each for key, each in value.items()
    }
