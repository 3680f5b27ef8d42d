"""The layouts in which images go around as files: class folders, lists of classes, a CSV per split, CUB-200-2011."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from glocal.common.errors import DataError
from glocal.recognizer.photos.folders import LARGEST_MEMBER, FileSource, is_litter, list_classes, top_folders
from glocal.recognizer.photos.images import UnusableImage, decode, is_picture
from glocal.research.data.dataset import csv_rows
from glocal.research.data.prepared import Sample

SPLITS = ("train", "val", "test")
WHOLE = ""  # the split of images that are not divided
SPLIT_OF = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_DATA = (".csv", ".pkl", ".pickle", ".npz")
_CUB = ("images.txt", "image_class_labels.txt", "classes.txt")
_SAMPLED = 4  # images whose size is looked at


@dataclass(frozen=True)
class Part:
    """Images of one split: how many each class has, and a stream of those of some classes."""

    counts: Mapping[str, int]
    samples: Callable[[Collection[str]], Iterator[Sample]]


@dataclass(frozen=True)
class Content:
    """What a layout holds before anybody says which data set it is."""

    words: str
    parts: Mapping[str, Part]  # by split, or WHOLE
    kind: str  # "files", "pickle", "cache-pickle", "array", "png" or "batches"
    side: int | None  # pixels, when the images looked at are squares of one size


def inner_folder(root: Path) -> Path:
    """``root`` without the lone folders around everything that packing leaves."""
    while True:
        entries = [entry for entry in root.iterdir() if not is_litter(entry.name)]
        folders = [entry for entry in entries if entry.is_dir()]
        loose = any(is_picture(each.name) or each.suffix.lower() in _DATA or each.name in _CUB for each in entries)
        if len(folders) != 1 or loose or any(is_picture(entry.name) for entry in folders[0].iterdir()):
            return root
        root = folders[0]


def listed_classes(root: Path) -> Content | None:
    """CIFAR-FS: ``data/<class>/images`` and ``splits/bertinetto/{train,val,test}.txt``, each a list of classes."""
    home = root / "splits" / "bertinetto"
    if not (root / "data").is_dir() or not (home / "train.txt").is_file():
        return None
    class_of, parts = _class_of(root / "data"), {}
    for split in SPLITS:
        classes = set(_lines(home / f"{split}.txt"))
        if missing := sorted(classes - set(class_of.values())):
            raise DataError(
                f"{home / split}.txt: there is no folder of class {missing[0]!r}; get the images of the list"
            )
        parts[split] = _files({path: name for path, name in class_of.items() if name in classes})
    return Content("class folders and lists of classes", parts, "files", _side([*class_of]))


def cub(root: Path) -> Content | None:
    """CUB-200-2011: ``images/<class>/``, ``images.txt``, ``image_class_labels.txt``, ``classes.txt``."""
    if not all((root / name).is_file() for name in _CUB):
        return None
    files, labels, names = (_numbered(root / name) for name in _CUB)
    class_of = {}
    for number, file in files.items():
        path, name = root / "images" / file, names.get(labels.get(number, ""))
        if not path.is_file() or ".." in file or name != path.parent.name:
            raise DataError(
                f"{root / _CUB[0]}: {file!r} is not an image of class {name!r} below images; copy all of it again"
            )
        class_of[str(path)] = name
    return Content("CUB's folders and lists", {WHOLE: _files(class_of)}, "files", _side([*class_of]))


def csv_per_split(root: Path) -> Content | None:
    """``{train,val,test}.csv`` of filename and label, in ``root`` or one folder below, and the images they list."""
    lists = [path for path in [*root.glob("*.csv"), *root.glob("*/*.csv")] if path.stem.lower() in SPLIT_OF]
    if len(lists) < 2:
        return None
    by_name: dict[str, list[str]] = {}
    for path in sorted(each for each in root.rglob("*") if is_picture(each.name) and not is_litter(each.name)):
        by_name.setdefault(path.name, []).append(str(path))
    parts, seen = {}, dict[str, Path]()
    for split, table in sorted((SPLIT_OF[path.stem.lower()], path) for path in lists):
        class_of = {}
        for row in csv_rows(table):
            paths = by_name.get(Path(row.filename).name, [])
            paths = paths if len(paths) < 2 else [path for path in paths if Path(path).parent.name == row.label]
            if len(paths) != 1:
                raise DataError(
                    f"{table}: line {row.line} names {row.filename!r}, and there are {len(paths)} such images"
                )
            if (earlier := seen.setdefault(paths[0], table)) is not table or paths[0] in class_of:
                raise DataError(f"{table}: line {row.line} names {row.filename!r}, which is in {earlier.name} already")
            class_of[paths[0]] = row.label
        parts[split] = _files(class_of)
    return Content("images and a CSV per split", parts, "files", _side([*seen]))


def class_folders(root: Path) -> Content | None:
    """``<class>/images``, or ``{train,val,test}/<class>/images``."""
    tops = sorted(top_folders(root))
    divided = {SPLIT_OF[name.lower()]: name for name in tops if name.lower() in SPLIT_OF and top_folders(root / name)}
    if len(divided) < 2:  # one alone may be a class: "train" is one of CIFAR-100
        divided = {WHOLE: ""}
    elif other := [name for name in tops if name not in divided.values()]:
        raise DataError(
            f"{root}: it is divided into {', '.join(divided)}, and {other[0]!r} is none of them; move it away"
        )
    class_of = {split: _class_of(root, inside) for split, inside in divided.items()}
    parts = {split: _files(class_of[split]) for split in (*SPLITS, WHOLE) if split in class_of}
    words = "class folders" + (f" in {', '.join(parts)}" if WHOLE not in parts else "")
    return Content(words, parts, "files", _side([path for each in class_of.values() for path in each]))


def common_side(sizes: Sequence[tuple[int, int]]) -> int | None:
    """The side of squares of one size, else None."""
    height, width = sizes[0]
    return height if height == width and len({*sizes}) == 1 else None


def _side(paths: Sequence[str]) -> int | None:
    try:
        return common_side([decode(Path(path)).shape[:2] for path in paths[:: max(1, len(paths) // _SAMPLED)]])
    except UnusableImage:
        return None  # reading all of them names it


def _files(class_of: Mapping[str, str]) -> Part:
    def samples(wanted: Collection[str]) -> Iterator[Sample]:
        return (Sample(name, _read(Path(path)), path) for path, name in class_of.items() if name in wanted)

    return Part(Counter(class_of.values()), samples)


def _read(path: Path) -> bytes | UnusableImage:
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_MEMBER:  # opening a named pipe would wait for ever
            return UnusableImage(str(path), f"it must be a regular file of at most {LARGEST_MEMBER:,} bytes")
        return path.read_bytes()
    except OSError as error:
        return UnusableImage(str(path), f"the file cannot be read ({error.strerror}); check its permissions")


def _class_of(root: Path, inside: str = "") -> dict[str, str]:
    listing = list_classes(root, inside=inside)
    assert isinstance(listing.source, FileSource)
    return dict(zip(listing.source.paths, listing.class_of, strict=True))


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not text in UTF-8 ({error}); save it as such") from error


def _numbered(path: Path) -> dict[str, str]:
    """Rows ``number text``."""
    rows = [line.partition(" ")[::2] for line in _lines(path)]
    if not all(text for _, text in rows) or len(dict(rows)) != len(rows):
        raise DataError(f"{path}: every row must be a number of its own and a text; copy it again")
    return dict(rows)
