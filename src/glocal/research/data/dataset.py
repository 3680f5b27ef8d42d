"""Images by class, in an order and with an identity that come from the images alone.

Digest of an image = sha256 of its shape and RGB pixels.  Images of a class are ordered by digest, classes by the
sha256 over their images' digests, and the manifest is the sha256 over those.  File names, class names and layout do
not enter.  So a folder, a zip, a CSV and an array of the same images have the same image at every index.  One seed
draws the same tasks from all of them.

Digests are kept in the cache, so that a folder opens fast the second time.  An image whose file changed, or that has
no kept digest, is decoded again.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import features

from glocal.common.cache import cache_dir
from glocal.common.errors import DataError
from glocal.common.files import write_text
from glocal.common.words import bad_pictures, listed, nearest
from glocal.recognizer.photos.folders import FileSource, ImageSource, Listing, list_classes
from glocal.recognizer.photos.images import ArraySource, Pixels, UnusableImage
from glocal.recognizer.photos.sources import made_ahead

Indices = NDArray[np.int64]  # of images in a data set
THREADS, AT_ONCE = 2, 256
TRUSTED_AFTER = 2_000_000_000  # ns: a younger file may change again without a change of its times


class BadImage(NamedTuple):
    """An image that cannot be used."""

    where: str
    reason: str


def content_digest(image: Pixels) -> bytes:
    """sha256 of shape and RGB pixels (H, W, 3)."""
    height, width, _ = image.shape
    digest = hashlib.sha256(f"{height}x{width}:".encode())
    digest.update(image.data)
    return digest.digest()


@dataclass(frozen=True, eq=False)
class ClassDataset:
    """n images of several classes; image i belongs to class ``classes[label[i]]``.  Build it with ``from_...``."""

    name: str
    source: ImageSource
    classes: tuple[str, ...]  # in content order
    label: Indices  # (n,) ascending
    position: Indices  # (n,) row in the source
    digest: NDArray[np.uint8]  # (n, 32) content digests, ascending within a class
    manifest: str  # hex; equal manifests = the same images in the same classes
    skipped: tuple[BadImage, ...] = ()  # images of the source left out on request
    ignored: int = 0  # files of the source that do not claim to be images

    def __len__(self) -> int:
        return len(self.label)

    def image(self, i: int) -> Pixels:
        """Decoded pixels (H, W, 3) of image i."""
        return self.source.read(int(self.position[i]))

    def same_image(self, i: int) -> Pixels:
        """``image(i)``, refused when it is no longer the image that was there when the data set was opened."""
        image = self.image(i)
        if content_digest(image) != self.digest[i].tobytes():
            message = f"image {self.where(i)} changed since the data set was opened; open it again"
            raise DataError(message, code="picture-changed")
        return image

    def where(self, i: int) -> str:
        """File, zip entry or array row of image i."""
        return self.source.where(int(self.position[i]))

    def members(self, c: int) -> Indices:
        """Indices of the images of class c."""
        if not 0 <= c < len(self.classes):
            raise DataError(f"class must be in 0..{len(self.classes) - 1} for data set {self.name!r}, got {c}")
        low, high = np.searchsorted(self.label, [c, c + 1])
        return np.arange(low, high)

    def distinct(self, members: Indices) -> Indices:
        """Of these images of one class, ascending, the first of each content."""
        first, digest = np.ones(len(members), bool), self.digest[members]
        first[1:] = (digest[1:] != digest[:-1]).any(1)  # equal digests are neighbours
        return members[first]

    @property
    def duplicates(self) -> int:
        """How many images repeat another one of their class."""
        return len(self) - sum(len(self.distinct(self.members(c))) for c in range(len(self.classes)))

    @property
    def counts(self) -> NDArray[np.int64]:
        """(classes,) images per class."""
        return np.bincount(self.label, minlength=len(self.classes))

    def subset(self, class_names: Iterable[str], *, name: str | None = None) -> ClassDataset:
        """The classes named, in content order; nothing is decoded again.

        ``skipped`` and ``ignored`` go along, because they describe the source.
        """
        wanted = dict.fromkeys(class_names)
        if not wanted:
            raise DataError(f"a subset of data set {self.name!r} needs at least one class, got none")
        for missing in (each for each in wanted if each not in self.classes):
            near = nearest(missing, self.classes)
            hint = f"did you mean {near!r}?" if near else f"it has {listed(self.classes)}"
            raise DataError(f"data set {self.name!r} has no class {missing!r}; {hint}")
        keep = np.isin(self.label, [c for c, each in enumerate(self.classes) if each in wanted])
        names = [self.classes[c] for c in self.label[keep]]
        return in_content_order(
            self.source,
            names,
            self.position[keep],
            self.digest[keep],
            name=name or f"{self.name} (subset)",
            skipped=self.skipped,
            ignored=self.ignored,
        )

    @classmethod
    def from_folder(
        cls, path: str | Path, *, inside: str = "", skip_bad: bool = False, name: str | None = None
    ) -> ClassDataset:
        """Images in class folders, or in a zip of them, which is not unpacked.

        ``inside`` names the folder that holds the classes, when ``path`` holds others too.  Files that are no images
        are counted, hidden files are not.
        """
        root = Path(path)
        name = name or (root.stem if root.is_file() else root.resolve().name)
        return _build(list_classes(root, inside=inside), name, root / inside, skip_bad)

    @classmethod
    def from_csv(cls, csv_path: str | Path, *, skip_bad: bool = False, name: str | None = None) -> ClassDataset:
        """Rows ``filename,label``, with or without a header; names count from the folder of the CSV.

        The list is its owner's: absolute names and ``..`` are followed wherever they lead.
        """
        path, lines = Path(csv_path), dict[tuple[str, str], int]()
        if not path.is_file():
            raise DataError(f"{path}: no such CSV file; it must hold the columns filename and label")
        for row in csv_rows(path):
            if (earlier := lines.setdefault((row.filename, row.label), row.line)) != row.line:
                raise DataError(
                    f"{path}: line {row.line} repeats line {earlier} ({row.filename!r}); list every image once"
                )
        source = FileSource([str(path.parent / filename) for filename, _ in lines])
        return _build(Listing(source, [label for _, label in lines], 0), name or path.stem, path, skip_bad)

    @classmethod
    def from_arrays(
        cls,
        images: NDArray[Any],
        labels: Sequence[int] | Sequence[str] | NDArray[Any],
        class_names: Sequence[str] | None = None,
        *,
        name: str = "arrays",
    ) -> ClassDataset:
        """uint8 images (n, H, W, 3) or grey (n, H, W); labels (n,) are names, or numbers that ``class_names`` names."""
        images, given = np.asarray(images), np.asarray(labels)
        if given.ndim != 1 or len(given) != len(images):
            raise DataError(f"labels must be one per image: {len(images)} images, labels of shape {given.shape}")
        if class_names is not None:
            if not np.issubdtype(given.dtype, np.integer):
                raise DataError(f"labels must be whole numbers when class_names is given, got {given.dtype}")
            if len(given) and (given.min() < 0 or given.max() >= len(class_names)):
                raise DataError(f"labels must be in 0..{len(class_names) - 1}, got {given.min()}..{given.max()}")
            if len(set(class_names)) != len(class_names):
                raise DataError("class_names must differ from each other; rename or merge the classes that share one")
        names = [str(each) if class_names is None else class_names[int(each)] for each in given]
        return _build(Listing(ArraySource(images), names, 0), name, None, False)


def _build(listing: Listing, name: str, root: Path | None, skip_bad: bool) -> ClassDataset:
    """``root`` is what the digests are kept for."""
    outcomes = digest_all(listing.source, root)
    if not outcomes:
        raise DataError(f"data set {name!r} has no images; give at least one per class")
    bad = tuple(outcome for outcome in outcomes if isinstance(outcome, BadImage))
    if bad and not skip_bad:
        message = f"data set {name!r} has {len(bad)} images that cannot be used; {bad_pictures(bad)}"
        raise DataError(message, code="bad-pictures")
    good = {i: outcome for i, outcome in enumerate(outcomes) if isinstance(outcome, bytes)}
    names = [listing.class_of[i] for i in good]
    if empty := sorted(set(listing.class_of) - set(names)):
        raise DataError(
            f"data set {name!r}: class {empty[0]!r} has no usable image (the first bad one is {bad[0].where}: "
            f"{bad[0].reason}); add some or remove the class"
        )
    digest = np.frombuffer(b"".join(good.values()), dtype=np.uint8).reshape(-1, 32)
    position = np.fromiter(good, np.int64, len(good))
    return in_content_order(listing.source, names, position, digest, name=name, skipped=bad, ignored=listing.ignored)


def in_content_order(
    source: ImageSource,
    names: Sequence[str],
    position: Indices,
    digest: NDArray[np.uint8],
    *,
    name: str,
    skipped: tuple[BadImage, ...] = (),
    ignored: int = 0,
) -> ClassDataset:
    """Order images (n,) of classes ``names`` (n,) by content alone and hash what results."""
    rows: dict[str, list[int]] = {}
    for row, class_name in enumerate(names):
        rows.setdefault(class_name, []).append(row)
    for members in rows.values():
        members.sort(key=lambda row: digest[row].tobytes())
    class_digest = {each: hashlib.sha256(digest[members].tobytes()).digest() for each, members in rows.items()}
    classes = tuple(sorted(rows, key=lambda each: (class_digest[each], each)))
    order = np.array([row for each in classes for row in rows[each]], dtype=np.int64)
    return ClassDataset(
        name=name,
        source=source,
        classes=classes,
        label=np.repeat(np.arange(len(classes), dtype=np.int64), [len(rows[each]) for each in classes]),
        position=position[order],
        digest=digest[order],
        manifest=hashlib.sha256(b"".join(class_digest[each] for each in classes)).hexdigest(),
        skipped=skipped,
        ignored=ignored,
    )


def digest_all(source: ImageSource, root: Path | None = None) -> list[bytes | BadImage]:
    """The digest of every image, or the reason why it has none; digests of images below ``root`` are kept."""
    if root is None:
        return _decode_all(source, range(len(source)))
    kept, started = _load(root), time.time_ns()
    stamps = [source.stamp(i) for i in range(len(source))]
    missing = [i for i, stamp in enumerate(stamps) if stamp is None or stamp not in kept]
    decoded = dict(zip(missing, _decode_all(source, missing), strict=True))
    digests = [decoded[i] if i in decoded else kept[stamp or ""] for i, stamp in enumerate(stamps)]
    fresh = {
        stamp: digest
        for stamp, digest in zip(stamps, digests, strict=True)
        if stamp is not None and isinstance(digest, bytes) and started - _changed_at(stamp) > TRUSTED_AFTER
    }
    if fresh != kept:
        _store(root, fresh)
    return digests


def digest_file(root: Path) -> Path:
    """The file with the digests of all images below ``root``, a folder, CSV or zip."""
    return cache_dir() / "digests" / f"{hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:32]}.json"


def _decode_all(source: ImageSource, wanted: Iterable[int]) -> list[bytes | BadImage]:
    batches = made_ahead(partial(_digest, source), wanted, AT_ONCE, workers=THREADS)
    return [digest for batch in batches for digest in batch]


def _digest(source: ImageSource, i: int) -> bytes | BadImage:
    try:
        return content_digest(source.read(i))
    except UnusableImage as bad:
        return BadImage(bad.where, bad.reason)


def _changed_at(stamp: str) -> int:
    """The later of the two times at the end of a stamp, in ns: a program can set one of them back, not both."""
    return max(map(int, stamp.split("|")[-2:]))


def _decoder() -> str:
    """The programs that decode: others may give other pixels.  Raise the 1 when images.py changes them."""
    heif = ""
    with contextlib.suppress(metadata.PackageNotFoundError):
        heif = f", pillow_heif {metadata.version('pillow_heif')}"
    return f"1, Pillow {PIL.__version__}, libjpeg {features.version('libjpeg_turbo')}{heif}"


_DECODER = _decoder()


def _load(root: Path) -> dict[str, bytes]:
    """Stamp -> digest; empty where nothing usable is kept."""
    try:
        stored = json.loads(digest_file(root).read_text("utf-8"))
        if stored["decoder"] != _DECODER:
            return {}
        digests = {stamp: bytes.fromhex(text) for stamp, text in stored["digests"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    return digests if all(len(digest) == 32 for digest in digests.values()) else {}


def _store(root: Path, digests: dict[str, bytes]) -> None:
    """Keep digests if the cache can be written."""
    content = {"decoder": _DECODER, "digests": {stamp: digest.hex() for stamp, digest in digests.items()}}
    with contextlib.suppress(OSError):
        write_text(digest_file(root), json.dumps(content))


CSV_COLUMNS = (("filename", "file", "path", "image"), ("label", "class"))


class ListedImage(NamedTuple):
    line: int
    filename: str
    label: str


def csv_rows(path: Path) -> list[ListedImage]:
    """Rows ``filename,label``; a first row that names the columns is a header."""
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a CSV in UTF-8 ({error}); save it as comma-separated UTF-8 text") from error
    rows: list[ListedImage] = []
    columns = [0, 1]
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for cells in ([cell.strip() for cell in row] for row in reader):
            if not any(cells):
                continue
            lower = [cell.lower() for cell in cells]
            header = [next((lower.index(name) for name in names if name in lower), -1) for names in CSV_COLUMNS]
            if not rows and min(header) >= 0:
                columns = header
                continue
            file, label = (cells[c] if c < len(cells) else "" for c in columns)
            if not file or not label:
                row = ",".join(cells)[:80]
                raise DataError(f"{path}: line {reader.line_num} must give a file name and a label, got {row!r}")
            if "\0" in file + label:
                raise DataError(f"{path}: line {reader.line_num} holds a zero byte, which no file name and label has")
            rows.append(ListedImage(reader.line_num, file, label))
    except csv.Error as error:
        raise DataError(f"{path}: not a CSV ({error}); save it as comma-separated text") from error
    if not rows:
        raise DataError(f"{path}: no rows; it must hold one row filename,label per image")
    return rows
