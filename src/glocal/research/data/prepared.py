"""The package's own form of a data set: prepared once from whatever people have, opened at once, read fast.

    index.json        what it is, and for each split its classes, counts, manifest and checksums.
    train.images.bin  images one after the other: pixels (H, W, 3) of small ones, files of large ones.
    train.tables.npz  begin, side, label, digest, order: a row for each image.

``begin`` (n + 1,) is where an image begins.  ``side`` (n, 2) is its height and width, or 0 for a file.  ``order`` (n,)
lists the rows in content order; the rows themselves are in the order in which the images came.  Opening compares the
tables with their checksum and the images with their size.  ``same_image`` compares an image with its digest.
"""

from __future__ import annotations

import hashlib
import io
import os
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints

from glocal.common.errors import DataError
from glocal.common.files import write_text
from glocal.common.schemas import Record, parsed
from glocal.common.words import printable
from glocal.recognizer.photos.images import Pixels, UnusableImage, check_side, decode
from glocal.research.data.dataset import BadImage, ClassDataset, content_digest, in_content_order

INDEX, IMAGES, TABLES = "index.json", "images.bin", "tables.npz"
SplitName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]  # becomes a file name
Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=1)]


class PreparedSplit(Record):
    classes: list[str]  # in content order
    counts: list[Count]  # images per class
    manifest: Hash
    bytes: Count  # of the images
    tables: Hash  # sha256: hashing the images would take as long as reading them
    skipped: tuple[BadImage, ...] = ()  # images left out on request

    @property
    def total(self) -> int:
        return sum(self.counts)


class PreparedIndex(Record):
    kind: Literal["glocal prepared data set"] = "glocal prepared data set"
    format: Literal[2] = 2  # raise it when a file changes its meaning
    name: str
    packing: str  # the layout it was prepared from, in words
    variant: str = "own"  # which of the forms that a published data set is known in
    created_by: str
    job: str = ""  # hash of what is being prepared
    splits: dict[SplitName, PreparedSplit]


class MappedImages:
    """Images of a memory-mapped file."""

    def __init__(self, path: Path, begin: NDArray[np.int64], side: NDArray[np.int64]) -> None:
        self._path, self._begin, self._side = path, begin, side
        self._bytes = np.asarray(np.memmap(path, np.uint8, mode="r"))

    def __len__(self) -> int:
        return len(self._side)

    def read(self, i: int) -> Pixels:
        begin, end = self._begin[i : i + 2]
        content, (height, width) = self._bytes[begin:end], self._side[i]
        if height:
            return content.reshape(height, width, 3).copy()
        return decode(content.tobytes(), name=self.where(i))

    def where(self, i: int) -> str:
        return f"{self._path}[{i}]"

    def stamp(self, i: int) -> str | None:
        return None


def is_prepared(folder: str | Path) -> bool:
    """Whether ``folder`` holds an index of ours, whole or damaged; others keep an index.json too."""
    try:
        with open(Path(folder) / INDEX, "rb") as file:
            return b"glocal prepared data set" in file.read(100)
    except OSError:
        return False


def open_prepared(folder: str | Path, split: str) -> ClassDataset:
    """One split of a prepared data set; nothing is decoded or hashed but the tables."""
    home = Path(folder)
    index = read_index(home)
    if split not in index.splits:
        splits = ", ".join(index.splits)
        raise DataError(
            f"{home} is divided into {splits}; ask for one of these splits, got {split!r}", code="no-such-split"
        )
    record = index.splits[split]
    tables = read_tables(home, split, record)
    order = tables["order"]
    return ClassDataset(
        name=f"{index.name}/{split}",
        source=MappedImages(home / f"{split}.{IMAGES}", tables["begin"], tables["side"]),
        classes=tuple(record.classes),
        label=tables["label"][order],
        position=order,
        digest=tables["digest"][order],
        manifest=record.manifest,
        skipped=record.skipped,
    )


def read_tables(home: Path, split: str, record: PreparedSplit) -> dict[str, NDArray[Any]]:
    """The tables of a split, refused when they or the images are not what was written."""
    path = home / f"{split}.{TABLES}"
    try:
        content, size = path.read_bytes(), (home / f"{split}.{IMAGES}").stat().st_size
    except OSError as error:
        raise _damaged(path, f"it cannot be read ({error.strerror})") from error
    if size != record.bytes:
        raise _damaged(home / f"{split}.{IMAGES}", f"it has {size:,} bytes instead of {record.bytes:,}")
    if hashlib.sha256(content).hexdigest() != record.tables:
        raise _damaged(path, "its checksum is another one")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            tables = {name: stored[name] for name in stored.files}
        whole = _fit(tables, record)
    except Exception as error:  # made up, and so it fails in any way
        raise _damaged(path, f"it holds no tables ({type(error).__name__})") from error
    if not whole:
        raise _damaged(path, "its tables do not belong to the index")
    return tables


def _fit(tables: dict[str, NDArray[Any]], record: PreparedSplit) -> bool:
    begin, side, label, digest, order = (tables[name] for name in ("begin", "side", "label", "digest", "order"))
    n, small = len(order), side[:, 0] > 0
    classes, counts = np.unique(label, return_counts=True)
    return bool(
        label.shape == order.shape == (n,)
        and digest.shape == (n, 32)
        and all(table.dtype == (np.uint8 if name == "digest" else np.int64) for name, table in tables.items())
        and (classes.tolist(), counts.tolist()) == ([*range(len(record.classes))], record.counts)
        and np.array_equal(np.sort(order), np.arange(n))
        and (begin[0], begin[-1]) == (0, record.bytes)
        and (np.diff(begin) >= 0).all()
        and np.array_equal(np.diff(begin)[small], 3 * side[small].prod(axis=1))
    )


def read_index(folder: str | Path) -> PreparedIndex:
    """What a prepared folder says of itself, without opening its splits."""
    path = Path(folder) / INDEX
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _damaged(path, f"it cannot be read ({error.strerror})") from error
    return parsed(PreparedIndex, content, lambda reason: _damaged(path, reason))


def write_index(folder: Path, index: PreparedIndex) -> None:
    write_text(folder / INDEX, index.model_dump_json(indent=1))


def _damaged(path: Path, what: str) -> DataError:
    return DataError(f"{path} is not as it was prepared: {what}; copy or prepare the data set again", code="damaged")


MAX_UNPACKED = 128 * 128  # pixels: larger images that come as files stay files, or photos would fill any disk


class Sample(NamedTuple):
    """An image on its way in: pixels (H, W, 3) in uint8, a file's bytes, or why there are none."""

    class_name: str
    image: NDArray[np.uint8] | bytes | UnusableImage
    where: str  # file, member or row a person would look for


def write_split(
    folder: Path,
    split: str,
    samples: Iterable[Sample],
    *,
    skip_bad: bool = False,
    progress: Callable[[int], None] | None = None,
) -> PreparedSplit:
    """Write the files of one split into ``folder``, flushed to the disk."""
    names: list[str] = []
    seen: set[str] = set()
    begin, side, digests, skipped = array("q", [0]), array("q"), bytearray(), list[BadImage]()
    with open(folder / f"{split}.{IMAGES}", "wb", buffering=1 << 20) as file:
        for sample in samples:
            seen.add(sample.class_name)
            try:
                pixels = _pixels(sample)
            except UnusableImage as bad:
                if not skip_bad:
                    raise
                skipped.append(BadImage(printable(bad.where), printable(bad.reason)))
                continue
            height, width, _ = pixels.shape
            as_file = isinstance(sample.image, bytes) and height * width > MAX_UNPACKED
            file.write(sample.image if as_file else pixels.data)  # type: ignore[arg-type]
            begin.append(file.tell())
            side.extend((0, 0) if as_file else (height, width))
            digests += content_digest(pixels)
            names.append(sample.class_name)
            if progress is not None:
                progress(len(names))
        file.flush()
        os.fsync(file.fileno())
    if not seen:
        raise DataError(f"split {split!r} has no images; give at least one per class")
    if empty := sorted(seen - set(names)):
        raise DataError(
            f"split {split!r}: class {empty[0]!r} has no usable image (the first bad one is {skipped[0].where}: "
            f"{skipped[0].reason}); add some or remove the class"
        )
    tables = {"begin": np.array(begin), "side": np.array(side).reshape(-1, 2)}
    tables["digest"] = np.frombuffer(digests, np.uint8).reshape(-1, 32)
    source = MappedImages(folder / f"{split}.{IMAGES}", tables["begin"], tables["side"])
    dataset = in_content_order(source, names, np.arange(len(names)), tables["digest"], name=split)
    tables["order"], tables["label"] = dataset.position, np.empty_like(dataset.label)
    tables["label"][dataset.position] = dataset.label
    buffer = io.BytesIO()
    np.savez(buffer, **tables)  # type: ignore[arg-type]
    with open(folder / f"{split}.{TABLES}", "wb") as file:
        file.write(buffer.getvalue())
        file.flush()
        os.fsync(file.fileno())
    return PreparedSplit(
        classes=[*dataset.classes],
        counts=dataset.counts.tolist(),
        manifest=dataset.manifest,
        bytes=begin[-1],
        tables=hashlib.sha256(buffer.getvalue()).hexdigest(),
        skipped=tuple(skipped),
    )


def _pixels(sample: Sample) -> Pixels:
    image, where = sample.image, sample.where
    if isinstance(image, UnusableImage):
        raise image
    if isinstance(image, bytes):
        return decode(image, name=where)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise UnusableImage(where, f"pixels must be uint8 (H, W, 3), got {image.dtype} {image.shape}; convert them")
    check_side(image.shape[0], image.shape[1], where)
    return np.ascontiguousarray(image)
