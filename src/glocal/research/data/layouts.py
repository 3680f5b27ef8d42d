"""How people lay pictures out by class (class folders, a zip of them, a CSV), and how picture i of them is read."""

from __future__ import annotations

import csv
import io
import os
import threading
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

from glocal.common.errors import DataError
from glocal.recognizer.photos.images import Pixels, UnusableImage, decode, is_picture
from glocal.research.data.archives import Limits, oversized, zip_entries

PICTURE_LIMITS = Limits(member=512 << 20)  # bytes unpacked: twice the largest picture that may be decoded


class ImageSource(Protocol):
    """n pictures in the order somebody packed them."""

    def __len__(self) -> int: ...

    def read(self, i: int) -> Pixels:
        """Pixels (H, W, 3) of picture i, the caller's own to change; UnusableImage when there are none."""
        ...

    def where(self, i: int) -> str:
        """What a person would look for to find picture i."""
        ...

    def stamp(self, i: int) -> str | None:
        """A text that changes whenever picture i may have changed; None when that cannot be told cheaply."""
        ...


class FileSource:
    """One file per picture."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, i: int) -> Pixels:
        return decode(self._paths[i])

    def where(self, i: int) -> str:
        return str(self._paths[i])

    def stamp(self, i: int) -> str | None:
        try:
            found = self._paths[i].stat()
        except OSError:
            return None
        return f"{self._paths[i].absolute()}|{_stat_stamp(found)}"


class ZipSource:
    """Members of a zip file that ``zip_entries`` let pass.  One handle per process: a forked copy opens its own.

    ``zipfile`` itself locks every read of a shared handle, so threads need nothing more.
    """

    def __init__(self, path: Path, members: Sequence[zipfile.ZipInfo]) -> None:
        self._path = path
        self._members = tuple(members)
        self._archive_stamp = _stat_stamp(path.stat())
        self._lock = threading.Lock()
        self._handle: zipfile.ZipFile | None = None
        self._handle_of = -1  # process that opened the handle: forked processes would share one file position

    def __len__(self) -> int:
        return len(self._members)

    def read(self, i: int) -> Pixels:
        entry = self._members[i]
        reason = oversized(entry.file_size, entry.compress_size, PICTURE_LIMITS)  # as the zip's directory says
        if reason is not None:
            raise UnusableImage(self.where(i), f"the zip entry {reason}; leave it out or make it smaller")
        try:
            data = self._archive().read(entry)  # never more bytes than the size checked above
        except MemoryError:
            raise UnusableImage(self.where(i), "not enough memory to unpack it; make it smaller") from None
        except (OSError, RuntimeError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise UnusableImage(self.where(i), f"the zip entry is damaged ({error}); pack it again") from error
        return decode(data, name=self.where(i))

    def where(self, i: int) -> str:
        return f"{self._path}:{self._members[i].filename}"

    def stamp(self, i: int) -> str | None:
        return f"{self._members[i].filename}|{self._members[i].CRC:08x}|{self._archive_stamp}"

    def _archive(self) -> zipfile.ZipFile:
        with self._lock:
            if self._handle is None or self._handle_of != os.getpid():
                self._handle = zipfile.ZipFile(self._path)
                self._handle_of = os.getpid()
            return self._handle

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_handle": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


def _stat_stamp(found: os.stat_result) -> str:
    """Size and times can be set back after a change; the time of the change itself and a new file's number cannot."""
    return f"{found.st_size}|{found.st_ino}|{found.st_ctime_ns}|{found.st_mtime_ns}"


_LITTER = {"__macosx", "thumbs.db", "desktop.ini"}  # what operating systems leave behind; hidden files go too
_SPLIT_NAMES = {"train", "val", "valid", "validation", "test"}
_COLUMNS = (("filename", "file", "path", "image"), ("label", "class"), ("split", "set", "phase"))
Columns: TypeAlias = tuple[int, int, int | None]  # of file, label and split
_Entry: TypeAlias = tuple[zipfile.ZipInfo, tuple[str, ...]]  # a file in a zip and the parts of its path


class Listing(NamedTuple):
    """Pictures found, not yet opened."""

    source: ImageSource
    class_of: list[str]  # class name of picture i of the source
    ignored: int  # files that belong to no class or do not claim to be pictures
    loose: Sequence[str] = ()  # names of pictures beside the class folders


def list_folder(root: Path) -> Listing:
    """``root/<class>/**/picture``, or the same below a lone folder of ``root``."""
    if not root.exists():
        raise DataError(f"{root}: no such folder; name a folder that holds one folder of pictures per class")
    if not root.is_dir():
        raise DataError(
            f"{root}: this is a file, not a folder; name a folder that holds one folder of pictures per class "
            "(or a .zip of such a folder)"
        )
    root = unwrap(root)
    folders, beside = _inside(root)
    loose = [entry.name for entry in beside if is_picture(entry.name)]
    if not folders:
        _refuse_no_classes(root, len(loose))
    paths: list[Path] = []
    class_of: list[str] = []
    ignored = len(beside)
    for folder in folders:
        files = [Path(parent, name) for parent, _, names in walk_once(folder) for name in names]
        pictures = [path for path in files if is_picture(path.name)]
        if not pictures:
            raise DataError(f"{folder}: class {folder.name!r} has no picture; add some or remove the folder")
        paths += pictures
        class_of += [folder.name] * len(pictures)
        ignored += len(files) - len(pictures)
    _refuse_splits(root, class_of, "pass one of these folders")
    return Listing(FileSource(paths), class_of, ignored, loose)


def unwrap(root: Path) -> Path:
    """``root``, or the lone folder in it that holds the class folders: what packing a folder wraps around it.

    A lone folder with pictures of its own is a class, unless two or more folders in it have pictures too.
    """
    while True:
        folders, loose = _inside(root)
        if len(folders) != 1 or any(is_picture(entry.name) for entry in loose):
            return root
        below, beside = _inside(folders[0])
        if not below or (any(is_picture(entry.name) for entry in beside) and sum(map(_has_picture, below)) < 2):
            return root  # the lone folder is a class
        root = folders[0]


def _has_picture(folder: Path) -> bool:
    return any(is_picture(name) for _, _, names in walk_once(folder) for name in names)


def list_zip(path: Path, *, inside: str = "") -> Listing:
    """``<inside>/<class>/**/picture`` within a zip, or the same below a lone folder."""
    members: list[zipfile.ZipInfo] = []
    class_of: list[str] = []
    loose: list[str] = []
    entries = _zip_entries(path)
    prefix = PurePosixPath(inside).parts
    if not any(parts[: len(prefix)] == prefix for _, parts in entries):  # then it may lie within the wrapper
        entries = _unwrap_entries(entries)
    depth = len(prefix)
    below = [(entry, parts[depth:]) for entry, parts in entries if parts[:depth] == prefix and len(parts) > depth]
    below = sorted(_unwrap_entries(below), key=itemgetter(1))  # as a folder, however it was packed
    for entry, parts in below:
        if not is_picture(parts[-1]):
            continue
        if len(parts) == 1:
            loose.append(parts[0])
        else:
            members.append(entry)
            class_of.append(parts[0])
    if not members:
        _refuse_no_classes(path / inside, len(loose))
    found = set(class_of)
    for name in dict.fromkeys(parts[0] for _, parts in below if len(parts) > 1):
        if name not in found:
            raise DataError(f"{path / inside}: class {name!r} has no picture; add some or remove the folder")
    _refuse_splits(path, class_of, "unpack it and pass one of these folders")
    return Listing(ZipSource(path, members), class_of, len(below) - len(members), loose)


def zip_folders(path: Path) -> set[str]:
    """The folders of a zip that ``list_zip`` takes for classes, or for splits."""
    return {parts[0] for _, parts in _unwrap_entries(_zip_entries(path)) if len(parts) > 1}


def _zip_entries(path: Path) -> list[_Entry]:
    if not path.is_file():
        raise DataError(f"{path}: no such zip file; from_folder reads a folder")
    split = [(entry, PurePosixPath(entry.filename.replace("\\", "/")).parts) for entry in zip_entries(path)]
    return [(entry, parts) for entry, parts in split if parts and not any(is_litter(p) and p != ".." for p in parts)]


def _unwrap_entries(entries: list[_Entry]) -> list[_Entry]:
    """As ``unwrap``: without the first folder of every path while that one folder holds all folders with pictures."""
    while True:
        pictures = [parts for _, parts in entries if is_picture(parts[-1])]
        below = {parts[1] for parts in pictures if len(parts) > 2}
        least = min(map(len, pictures), default=0)
        if len({parts[0] for parts in pictures}) != 1 or least < 2 or (least == 2 and len(below) < 2):
            return entries
        lone = pictures[0][0]
        entries = [(entry, parts[1:] if parts[0] == lone and len(parts) > 1 else parts) for entry, parts in entries]


def list_csv(path: Path) -> Listing:
    """Rows ``filename,label``; file names count from the folder the CSV lies in."""
    if not path.is_file():
        raise DataError(f"{path}: no such CSV file; it must hold the columns filename and label")
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a CSV in UTF-8 ({error}); save it as comma-separated UTF-8 text") from error
    first_seen: dict[tuple[str, str], int] = {}
    for row in csv_rows(text, str(path)):
        if (earlier := first_seen.setdefault((row.filename, row.label), row.line)) != row.line:
            raise DataError(
                f"{path}: line {row.line} repeats line {earlier} ({row.filename!r}); list every picture once"
            )
    source = FileSource([path.parent / filename for filename, _ in first_seen])
    return Listing(source, [label for _, label in first_seen], 0)


class Row(NamedTuple):
    line: int
    filename: str
    label: str
    split: str  # as it is written, empty when the list does not say


def csv_rows(text: str, where: str) -> list[Row]:
    """Rows ``filename,label[,split]``; a first row that names the columns is a header."""
    rows: list[Row] = []
    columns: Columns = (0, 1, 2)
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for cells in ([cell.strip() for cell in row] for row in reader):
            if not any(cells):
                continue
            if not rows and (named := csv_header(cells)) is not None:
                columns = named
                continue
            file, label, split = ("" if c is None or c >= len(cells) else cells[c] for c in columns)
            if not file or not label:
                told = ",".join(cells)[:80]
                raise DataError(f"{where}: line {reader.line_num} must give a file name and a label, got {told!r}")
            if "\0" in file + label:
                raise DataError(f"{where}: line {reader.line_num} holds a zero byte, which no file name and label has")
            rows.append(Row(reader.line_num, file, label, split))
    except csv.Error as error:
        raise DataError(f"{where}: not a CSV ({error}); save it as comma-separated text") from error
    if not rows:
        raise DataError(f"{where}: no rows; it must hold one row filename,label per picture")
    return rows


def csv_header(cells: list[str]) -> Columns | None:
    """Where file, label and split are when these cells are the names of columns."""
    lower = [cell.lower() for cell in cells]
    file, label, split = (next((lower.index(name) for name in names if name in lower), None) for names in _COLUMNS)
    return None if file is None or label is None else (file, label, split)


def _inside(root: Path) -> tuple[list[Path], list[Path]]:
    """Folders and other files right in ``root``, in a fixed order."""
    try:
        top = sorted(entry for entry in root.iterdir() if not is_litter(entry.name))
    except OSError as error:
        refuse_unreadable(error)
    return [entry for entry in top if entry.is_dir()], [entry for entry in top if not entry.is_dir()]


def walk_once(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Like ``os.walk`` in a fixed order, without litter; links are followed, but no folder is entered twice."""
    seen: set[tuple[int, int]] = set()
    for parent, folders, files in os.walk(root, followlinks=True, onerror=refuse_unreadable):
        here = os.stat(parent)
        if (here.st_dev, here.st_ino) in seen:
            folders.clear()
            continue
        seen.add((here.st_dev, here.st_ino))
        folders[:] = sorted(name for name in folders if not is_litter(name))
        yield parent, folders, sorted(name for name in files if not is_litter(name))


def is_litter(name: str) -> bool:
    return name.startswith(".") or name.lower() in _LITTER


def refuse_unreadable(error: OSError) -> NoReturn:
    raise DataError(f"{error.filename}: cannot be listed ({error.strerror}); check its permissions") from error


def _refuse_no_classes(root: Path, loose_pictures: int) -> NoReturn:
    if loose_pictures:
        raise DataError(
            f"{root}: {loose_pictures} pictures lie directly in it, and no class folder does; "
            "put the pictures of each class into a folder named after the class"
        )
    raise DataError(f"{root}: no pictures and no class folders in it; it must hold one folder of pictures per class")


def _refuse_splits(root: Path, class_of: list[str], way_out: str) -> None:
    if len(names := set(class_of)) > 1 and names <= _SPLIT_NAMES:
        raise DataError(f"{root}: its folders {sorted(names)} are splits, not classes; {way_out}")
