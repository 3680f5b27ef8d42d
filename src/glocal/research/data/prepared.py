"""The package's own form of a data set: prepared once from whatever people have, opened at once, read fast.

    index.json         name, where it came from, and for each split its classes, counts, manifest and files
    train.images.npy   (n, H, W, 3) uint8, when all pictures of the split have one size; otherwise
    train.blobs.bin    encoded pictures, one after the other, and
    train.offsets.npy  (n + 1,) where each begins, and where the last one ends
    train.labels.npy   (n,) class of each picture, a place in the index's list of classes
    train.digests.npy  (n, 32) content digest of each picture
    train.order.npy    (n,) rows in content order, as ClassDataset counts them

Rows of every file but the last are in the order the pictures arrived, because they are written as they come.  The
tables are checked by their checksums when opened, the pictures by size and shape: their digests tell the rest to
whoever reads them with ``same_image``.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from glocal.common.errors import DataError
from glocal.common.files import write_text
from glocal.common.validation import check_record, shown
from glocal.recognizer.photos.folders import ImageSource
from glocal.recognizer.photos.images import ArraySource, Pixels, decode, picture_size
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.digests import BadImage

FORMAT = 1  # raise it when a file changes its meaning
INDEX, IMAGES, BLOBS, OFFSETS = "index.json", "images.npy", "blobs.bin", "offsets.npy"
LABELS, DIGESTS, ORDER = "labels.npy", "digests.npy", "order.npy"
_MARK = "glocal prepared data set"  # first in the file, so that a damaged index is still known for what it is
_SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")  # becomes a file name


@dataclass(frozen=True)
class FileRecord:
    bytes: int
    sha256: str | None = None  # tables only: hashing pictures would take as long as reading them


@dataclass(frozen=True)
class PreparedSplit:
    classes: tuple[str, ...]  # in content order
    counts: tuple[int, ...]  # pictures per class
    manifest: str
    size: tuple[int, int] | None  # (H, W) of all pictures, None when they differ or stay encoded
    files: Mapping[str, FileRecord]  # by the part of the file name after the split's
    skipped: tuple[BadImage, ...] = ()  # pictures left out on request

    @property
    def total(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True)
class PreparedIndex:
    name: str
    packing: str  # the form it was prepared from, in words
    created_by: str
    splits: Mapping[str, PreparedSplit]
    variant: str = "own"  # which of the forms a published data set is known in; see ``facts``


class MappedImages(ArraySource):
    """Rows of a memory-mapped ``images.npy``; another process that is handed one maps the file itself."""

    def __init__(self, path: Path) -> None:
        # a plain array on top of the map: slicing a np.memmap costs several times the copy of a small picture
        super().__init__(np.asarray(np.load(path, mmap_mode="r", allow_pickle=False)))
        self._path = path

    @property
    def shape(self) -> tuple[int, ...]:
        return self._images.shape

    def where(self, i: int) -> str:
        return f"{self._path}[{i}]"

    def __reduce__(self) -> tuple[type[MappedImages], tuple[Path]]:
        return MappedImages, (self._path,)


class MappedBlobs:
    """Encoded pictures of a ``blobs.bin``, decoded when read; picture i is ``offsets[i]:offsets[i + 1]``."""

    def __init__(self, path: Path, offsets: NDArray[np.int64]) -> None:
        self._path, self._offsets = path, offsets
        self._blobs = np.asarray(np.memmap(path, np.uint8, mode="r"))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def read(self, i: int) -> Pixels:
        return decode(self._encoded(i), name=self.where(i))

    def size(self, i: int) -> tuple[int, int]:
        return picture_size(self._encoded(i), name=self.where(i))

    def _encoded(self, i: int) -> bytes:
        begin, end = self._offsets[i : i + 2]
        return self._blobs[begin:end].tobytes()

    def where(self, i: int) -> str:
        return f"{self._path}[{i}]"

    def stamp(self, i: int) -> str | None:
        return None

    def __reduce__(self) -> tuple[type[MappedBlobs], tuple[Path, NDArray[np.int64]]]:
        return MappedBlobs, (self._path, self._offsets)


def is_prepared(folder: str | Path) -> bool:
    """Whether ``folder`` holds an index of ours, whole or damaged; others keep an index.json too."""
    try:
        with open(Path(folder) / INDEX, "rb") as file:
            return _MARK.encode() in file.read(100)
    except OSError:
        return False


def open_prepared(folder: str | Path, split: str) -> ClassDataset:
    """One split of a prepared data set; nothing is decoded or hashed but the small tables."""
    home = Path(folder)
    index = read_index(home)
    if split not in index.splits:
        splits = ", ".join(index.splits)
        told = f"{home} is divided into {splits}; ask for one of these splits, got {split!r}"
        raise DataError(told, code="no-such-split")
    record = index.splits[split]
    tables = check_files(home, split, record)
    _check_tables(home / INDEX, record, tables)
    order = tables[ORDER]
    return ClassDataset(
        name=f"{index.name}/{split}",
        source=_open_pictures(home, split, record, tables),
        classes=record.classes,
        label=tables[LABELS][order],
        position=order,
        digest=tables[DIGESTS][order],
        manifest=record.manifest,
        skipped=record.skipped,
    )


def check_files(folder: Path, split: str, record: PreparedSplit) -> dict[str, NDArray[Any]]:
    """Refuse a split whose files are not those that were written; return its tables."""
    tables: dict[str, NDArray[Any]] = {}
    for suffix, wanted in record.files.items():
        path = folder / f"{split}.{suffix}"
        try:
            size = path.stat().st_size
            if size != wanted.bytes:
                _refuse(path, f"it has {size:,} bytes instead of {wanted.bytes:,}")
            if wanted.sha256 is not None:
                content = path.read_bytes()
                if hashlib.sha256(content).hexdigest() != wanted.sha256:
                    _refuse(path, "its checksum is another one")
                tables[suffix] = np.load(io.BytesIO(content), allow_pickle=False)
        except OSError as error:
            _refuse(path, f"it cannot be read ({error.strerror})")
        except DataError:
            raise
        except Exception as error:  # a damaged head makes numpy fail in any way
            _refuse(path, f"it is no table ({str(error)[:80]})")
    return tables


def _check_tables(path: Path, record: PreparedSplit, tables: Mapping[str, NDArray[Any]]) -> None:
    """Whole by their hashes they may still not belong together: nobody is to find that out picture by picture."""
    n = record.total
    shapes = {LABELS: (n,), ORDER: (n,), OFFSETS: (n + 1,), DIGESTS: (n, 32)}
    if tables.keys() != record.files.keys() & shapes.keys():
        _refuse(path, "a table has no checksum")
    for suffix, table in tables.items():
        if table.shape != shapes[suffix] or table.dtype != (np.uint8 if suffix == DIGESTS else np.int64):
            _refuse(path, f"{suffix} has another shape or kind")
    labels, classes = tables[LABELS], len(record.classes)
    placed = n > 0 and 0 <= labels.min() <= labels.max() < classes  # counting takes room by the largest
    if not placed or np.bincount(labels, minlength=classes).tolist() != list(record.counts):
        _refuse(path, "its labels do not belong to its classes")
    if not np.array_equal(np.sort(tables[ORDER]), np.arange(n)):
        _refuse(path, "its order is none")
    places = tables.get(OFFSETS, np.zeros(1, np.int64))
    if places[0] or (np.diff(places) < 0).any() or (BLOBS in record.files and places[-1] != record.files[BLOBS].bytes):
        _refuse(path, "its pictures lie outside of their file")


def read_index(folder: str | Path) -> PreparedIndex:
    """What a prepared folder says of itself, without opening its splits."""
    path = Path(folder) / INDEX
    try:
        stored = json.loads(path.read_text("ascii"))
        if stored["kind"] != _MARK:
            _refuse(path, "it is not the index of a prepared data set")
        if stored["format"] != FORMAT:
            raise DataError(
                f"{path} is of format {shown(stored['format'])}, this version of glocal reads format {FORMAT}; "
                "prepare the data set again",
                code="format",
            )
        if stored["sha256"] != _checksum(stored["content"]):
            _refuse(path, "its checksum is another one")
        return _from_json(stored["content"])
    except OSError as error:
        _refuse(path, f"it cannot be read ({error.strerror})")
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        _refuse(path, f"it is damaged ({type(error).__name__})")


def write_index(folder: Path, index: PreparedIndex) -> None:
    content = asdict(index)
    stored = {"kind": _MARK, "format": FORMAT, "sha256": _checksum(content), "content": content}
    write_text(folder / INDEX, json.dumps(stored, indent=1))  # ASCII: a class may be called what UTF-8 cannot say


def check_split_name(split: str) -> None:
    if not _SPLIT_NAME.fullmatch(split):
        raise DataError(f"the name of a split must be letters, digits, - and _, got {split!r}; rename it")


def _open_pictures(folder: Path, split: str, record: PreparedSplit, tables: dict[str, NDArray[Any]]) -> ImageSource:
    if record.size is None:
        return MappedBlobs(folder / f"{split}.{BLOBS}", tables[OFFSETS])
    path, wanted = folder / f"{split}.{IMAGES}", (record.total, *record.size, 3)
    try:
        images = MappedImages(path)
    except Exception as error:  # a DataError of a foreign shape among them; a damaged head fails in any way
        _refuse(path, f"it is no array of pictures ({error})")
    if images.shape != wanted:
        _refuse(path, f"its shape is {images.shape} instead of {wanted}")
    return images


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _from_json(content: Mapping[str, Any]) -> PreparedIndex:
    splits: dict[str, PreparedSplit] = {}
    for split, stored in content["splits"].items():
        check_split_name(split)
        pictures = {BLOBS, OFFSETS} if stored["size"] is None else {IMAGES}
        if stored["files"].keys() != pictures | {LABELS, DIGESTS, ORDER}:
            raise ValueError(f"split {split} with files {[*stored['files']]}")
        check_record(PreparedSplit, {name: stored[name] for name in ("classes", "counts", "manifest", "size")})
        read = PreparedSplit(
            classes=tuple(stored["classes"]),
            counts=tuple(stored["counts"]),
            manifest=stored["manifest"],
            size=None if stored["size"] is None else (stored["size"][0], stored["size"][1]),
            files={suffix: FileRecord(**file) for suffix, file in stored["files"].items()},
            skipped=tuple(BadImage(*each) for each in stored["skipped"]),
        )
        for record in read.files.values():
            check_record(FileRecord, vars(record))
        for bad in read.skipped:
            check_record(BadImage, bad._asdict())
        _check_text(*read.classes, read.manifest, *(text for bad in read.skipped for text in bad))
        if len({*read.classes}) != len(read.classes) or len(read.counts) != len(read.classes):
            raise ValueError(f"split {split} with a class twice, or without a count")
        splits[split] = read
    told = {name: content[name] for name in ("name", "packing", "created_by")}
    told["variant"] = content.get("variant", "own")  # the first indices had none
    check_record(PreparedIndex, told)
    _check_text(*told.values())
    return PreparedIndex(**told, splits=splits)


def _check_text(*texts: str) -> None:
    """A name may be bytes that are no UTF-8, as names of files are; the other half characters have no bytes at all."""
    for each in texts:
        each.encode("utf-8", "surrogateescape")


def _refuse(path: Path, what: str) -> NoReturn:
    raise DataError(f"{path} is not as it was prepared: {what}; copy or prepare the data set again", code="damaged")
