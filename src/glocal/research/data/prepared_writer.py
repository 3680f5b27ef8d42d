"""One split written as its pictures come: the pictures go to disk at once, 50 bytes of each stay in memory."""

from __future__ import annotations

import hashlib
import io
import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from glocal.common.errors import DataError
from glocal.recognizer.photos.folders import ImageSource
from glocal.recognizer.photos.images import Pixels, UnusableImage, check_side, decode
from glocal.recognizer.photos.images import encoded as as_file
from glocal.research.data.dataset import in_content_order
from glocal.research.data.digests import BadImage, content_digest
from glocal.research.data.prepared import (
    BLOBS,
    DIGESTS,
    IMAGES,
    LABELS,
    OFFSETS,
    ORDER,
    FileRecord,
    MappedBlobs,
    MappedImages,
    PreparedSplit,
)

MAX_UNPACKED = 128 * 128  # pixels: larger pictures that come encoded stay so, or photos would fill any disk
_BUFFER = 1 << 20


class Sample(NamedTuple):
    """A picture on its way in: pixels (H, W, 3) in uint8, a file's bytes, or why there are none."""

    class_name: str
    picture: NDArray[np.uint8] | bytes | UnusableImage
    where: str  # file, member or row a person would look for


def write_split(
    folder: Path,
    split: str,
    samples: Iterable[Sample],
    *,
    skip_bad: bool = False,
    progress: Callable[[int], None] | None = None,
) -> PreparedSplit:
    """Write the files of one split into ``folder``, flushed to the disk; OSError is the disk's, not the input's."""
    for leftover in folder.glob(f"{split}.*"):
        leftover.unlink()
    number: dict[str, int] = {}  # class name -> number by first appearance
    class_of, digests, skipped = array("q"), bytearray(), []
    with ExitStack() as files:
        store: _Images | _Blobs | None = None
        for sample in _readable(split, samples):
            c = number.setdefault(sample.class_name, len(number))
            try:
                pixels = _pixels(sample)
            except UnusableImage as bad:
                if not skip_bad:
                    raise
                skipped.append(BadImage(bad.where, bad.reason))
                continue
            encoded = sample.picture if isinstance(sample.picture, bytes) else None
            if store is None:
                store = files.enter_context(closing(_Images(folder / f"{split}.{IMAGES}", pixels.shape)))
            if isinstance(store, _Images) and not store.takes(pixels, encoded):
                store = store.turned_into(files.enter_context(closing(_Blobs(folder / f"{split}.{BLOBS}"))))
            store.append(pixels, encoded)
            class_of.append(c)
            digests += content_digest(pixels)
            if progress is not None:
                progress(len(class_of))
        _refuse_empty_classes(split, list(number), class_of, skipped)
        assert store is not None
        store.finish()
    tables: dict[str, NDArray[Any]] = {DIGESTS: np.frombuffer(digests, np.uint8).reshape(-1, 32)}
    names = list(number)
    source: ImageSource
    if isinstance(store, _Blobs):
        tables[OFFSETS] = np.frombuffer(store.offsets, np.int64)
        source = MappedBlobs(store.path, tables[OFFSETS])
    else:
        source = MappedImages(store.path)
    rows = np.arange(len(class_of))
    dataset = in_content_order(source, [names[c] for c in class_of], rows, tables[DIGESTS], name=split)
    tables[ORDER], tables[LABELS] = dataset.position, np.empty_like(dataset.label)
    tables[LABELS][dataset.position] = dataset.label
    records = {suffix: _write_table(folder / f"{split}.{suffix}", table) for suffix, table in tables.items()}
    return PreparedSplit(
        classes=dataset.classes,
        counts=tuple(dataset.counts.tolist()),
        manifest=dataset.manifest,
        size=None if isinstance(store, _Blobs) else store.shape[:2],
        files={store.path.name.removeprefix(f"{split}."): FileRecord(store.path.stat().st_size), **records},
        skipped=tuple(skipped),
    )


class _Growing:
    """A file that grows by one picture at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "w+b", buffering=_BUFFER)  # noqa: SIM115 - closed by the ExitStack of the writer

    def finish(self) -> None:
        _sync(self._file)

    def close(self) -> None:
        self._file.close()


class _Images(_Growing):
    """``images.npy``."""

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        super().__init__(path)
        self.shape, self.n = (shape[0], shape[1], 3), 0
        self._begin = self._write_header()

    def takes(self, pixels: Pixels, encoded: bytes | None) -> bool:
        return pixels.shape == self.shape and (encoded is None or self.shape[0] * self.shape[1] <= MAX_UNPACKED)

    def append(self, pixels: Pixels, encoded: bytes | None) -> None:
        self._file.write(pixels.data)
        self.n += 1

    def turned_into(self, blobs: _Blobs) -> _Blobs:
        """Hand over what is here, as PNG, to the form that takes every size, and go."""
        self._file.seek(self._begin)
        for _ in range(self.n):
            pixels = np.frombuffer(self._file.read(int(np.prod(self.shape))), np.uint8).reshape(self.shape)
            blobs.append(pixels, None)
        self._file.close()
        self.path.unlink()
        return blobs

    def finish(self) -> None:
        self._file.seek(0)
        end = self._write_header()
        assert end == self._begin  # numpy leaves room for as many digits as the number of rows can need
        super().finish()

    def _write_header(self) -> int:
        form = {"descr": "|u1", "fortran_order": False, "shape": (self.n, *self.shape)}
        np.lib.format.write_array_header_1_0(self._file, form)
        return self._file.tell()


class _Blobs(_Growing):
    """``blobs.bin``, encoded pictures; pixels that came without a file become PNG."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.offsets = array("q", [0])

    def append(self, pixels: Pixels, encoded: bytes | None) -> None:
        data = as_file(Image.fromarray(pixels)) if encoded is None else encoded
        self._file.write(data)
        self.offsets.append(self.offsets[-1] + len(data))


def _readable(split: str, samples: Iterable[Sample]) -> Iterator[Sample]:
    """The samples; what the system says against reading them must not look like a failure to write."""
    try:
        yield from samples
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise DataError(
            f"the pictures of split {split!r} cannot be read ({what}); check where they come from"
        ) from error


def _pixels(sample: Sample) -> Pixels:
    picture, where = sample.picture, sample.where
    if isinstance(picture, UnusableImage):
        raise picture
    if isinstance(picture, bytes):
        return decode(picture, name=where)
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
        raise UnusableImage(where, f"pixels must be uint8 (H, W, 3), got {picture.dtype} {picture.shape}; convert them")
    check_side(picture.shape[0], picture.shape[1], where)
    return np.ascontiguousarray(picture)


def _refuse_empty_classes(split: str, names: list[str], class_of: array[int], skipped: list[BadImage]) -> None:
    if not names:
        raise DataError(f"split {split!r} has no pictures; give at least one per class")
    if empty := sorted(set(range(len(names))) - set(class_of)):
        raise DataError(
            f"split {split!r}: class {names[empty[0]]!r} has no usable picture (the first bad one is "
            f"{skipped[0].where}: {skipped[0].reason}); add some or remove the class"
        )


def _write_table(path: Path, table: NDArray[Any]) -> FileRecord:
    buffer = io.BytesIO()
    np.save(buffer, table, allow_pickle=False)
    content = buffer.getvalue()
    with open(path, "wb") as file:
        file.write(content)
        _sync(file)
    return FileRecord(len(content), hashlib.sha256(content).hexdigest())


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
