"""Photos in class folders, or in a zip of class folders.

The class of a photo is the first folder of its path: ``bolt/old/1.jpg`` shows a bolt.  A lone folder around all class
folders, as packing adds it, does not count.  Names that begin with a dot, and files that systems leave behind, are
ignored.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import NamedTuple, NoReturn, Protocol, TypeAlias

from glocal.common.errors import DataError
from glocal.recognizer.photos.images import Pixels, UnusableImage, decode, is_picture

LARGEST_MEMBER = 512 << 20  # bytes of an unpacked picture file: twice the largest picture that may be decoded
LARGEST_RATIO = 200  # a member that grows more than this when unpacked ...
RATIO_MATTERS_FROM = 64 << 20  # ... to more bytes than this is a bomb
LITTER = {"__macosx", "thumbs.db", "desktop.ini"}
SPLIT_NAMES = {"train", "val", "valid", "validation", "test"}
_Parts: TypeAlias = "tuple[str, ...]"  # of a path; the last part is empty for a folder without files
_Entry: TypeAlias = "tuple[_Parts, str | zipfile.ZipInfo]"


class ImageSource(Protocol):
    """Pictures in a fixed order."""

    def __len__(self) -> int: ...

    def read(self, i: int) -> Pixels:
        """Pixels (H, W, 3) of picture i, as a copy; UnusableImage when it cannot be used."""
        ...

    def where(self, i: int) -> str:
        """The place of picture i, for messages."""
        ...

    def stamp(self, i: int) -> str | None:
        """A text that changes when picture i changes; None if that would cost as much as reading it."""
        ...


@dataclass(frozen=True)
class FileSource:
    """One file per picture."""

    paths: Sequence[str]

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, i: int) -> Pixels:
        return decode(Path(self.paths[i]))

    def where(self, i: int) -> str:
        return self.paths[i]

    def stamp(self, i: int) -> str | None:
        try:
            return f"{os.path.abspath(self.paths[i])}|{_file_stamp(self.paths[i])}"
        except OSError:
            return None


@dataclass(frozen=True)
class ZipSource:
    """Members of a zip."""

    path: str
    members: Sequence[zipfile.ZipInfo]
    opened_as: str  # stamp of the zip

    def __len__(self) -> int:
        return len(self.members)

    def read(self, i: int) -> Pixels:
        member, where = self.members[i], self.where(i)
        size, packed = member.file_size, max(1, member.compress_size)
        if size > LARGEST_MEMBER or (size > RATIO_MATTERS_FROM and size > LARGEST_RATIO * packed):
            raise UnusableImage(where, f"the zip entry unpacks to {size:,} bytes, which is too large; leave it out")
        try:
            data = _open_zip(self.path, self.opened_as, os.getpid()).read(member)  # at most file_size bytes
        except MemoryError:
            raise UnusableImage(where, "not enough memory to unpack it; make it smaller") from None
        except (OSError, RuntimeError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise UnusableImage(where, f"the zip entry is damaged or encrypted ({error}); pack it again") from error
        return decode(data, name=where)

    def where(self, i: int) -> str:
        return f"{self.path}:{self.members[i].filename}"

    def stamp(self, i: int) -> str | None:
        return f"{self.members[i].filename}|{self.members[i].CRC:08x}|{self.opened_as}"


@lru_cache(maxsize=4)
def _open_zip(path: str, stamp: str, process: int) -> zipfile.ZipFile:
    """One handle per file and process: a forked process must not share the position in the file."""
    return zipfile.ZipFile(path)


def _file_stamp(path: str | Path) -> str:
    """A program can set the size and the last time back; it cannot set the inode number and the time of change."""
    status = os.stat(path)
    return f"{status.st_size}|{status.st_ino}|{status.st_ctime_ns}|{status.st_mtime_ns}"


class Listing(NamedTuple):
    """Pictures of a folder or zip, not yet opened."""

    source: ImageSource
    class_of: list[str]  # class of each picture
    ignored: int  # files that are no pictures, or belong to no class
    loose: Sequence[str] = ()  # pictures beside the class folders
    nested: dict[str, list[str]] = {}  # noqa: RUF012 - class folders of folders alone, which may be the real classes


def list_classes(path: Path, *, inside: str = "") -> Listing:
    """Pictures by class in a folder, a zip, or the folder ``inside`` of one."""
    entries = _entries(path, inside)
    files = [(parts, handle) for parts, handle in entries if parts[-1]]
    pictures = [(parts, handle) for parts, handle in files if is_picture(parts[-1])]
    loose = [parts[0] for parts, _ in pictures if len(parts) == 1]
    classes = [(parts, handle) for parts, handle in pictures if len(parts) > 1]
    where = path / inside
    class_of = [parts[0] for parts, _ in classes]
    names = set(class_of)
    for name in sorted({parts[0] for parts, _ in entries if len(parts) > 1} - names if names else ()):
        raise DataError(f"{where}: class {name!r} has no picture; add some or remove the folder")
    if not classes:
        _refuse_no_classes(where, len(loose))
    if len(names) > 1 and names <= SPLIT_NAMES:
        raise DataError(f"{where}: its folders {sorted(names)} are splits, not classes; name one of these folders")
    handles = [handle for _, handle in classes]
    return Listing(_source(path, handles), class_of, len(files) - len(classes), loose, _nested(entries))


def top_folders(path: Path) -> set[str]:
    """The folders of a folder or zip that are its classes or splits."""
    return {parts[0] for parts, _ in _entries(path, "") if len(parts) > 1}


def is_litter(name: str) -> bool:
    return name.startswith(".") or name.lower() in LITTER


def walk(root: str | Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """``os.walk`` by name and without litter; it follows links and enters no folder twice."""
    entered: set[tuple[int, int]] = set()
    for parent, folders, files in os.walk(root, followlinks=True, onerror=_refuse_unreadable):
        status = os.stat(parent)
        if (status.st_dev, status.st_ino) in entered:
            folders.clear()
            continue
        entered.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not is_litter(name))
        yield parent, folders, sorted(name for name in files if not is_litter(name))


def _refuse_unreadable(error: OSError) -> NoReturn:
    raise DataError(f"{error.filename}: cannot be listed ({error.strerror}); check its permissions") from error


def _source(path: Path, handles: Iterable[str | zipfile.ZipInfo]) -> ImageSource:
    if path.is_dir():
        return FileSource([str(each) for each in handles])
    members = [each for each in handles if isinstance(each, zipfile.ZipInfo)]
    return ZipSource(str(path), members, _file_stamp(path))


def _nested(entries: Iterable[_Entry]) -> dict[str, list[str]]:
    folders: dict[str, set[str]] = {}
    plain = {parts[0] for parts, _ in entries if len(parts) == 2 and is_picture(parts[1])}
    for parts, _ in entries:
        if len(parts) > 2 and parts[0] not in plain:
            folders.setdefault(parts[0], set()).add(parts[1])
    return {name: sorted(below) for name, below in folders.items() if len(below) > 1}


def _entries(path: Path, inside: str) -> list[_Entry]:
    """Files by the parts of their paths, in order of these; without lone folders around them."""
    entries = sorted(_folder_entries(path) if path.is_dir() else _zip_entries(path), key=itemgetter(0))
    prefix = PurePosixPath(inside).parts
    if not any(parts[: len(prefix)] == prefix for parts, _ in entries):
        entries = _unwrapped(entries)
    depth = len(prefix)
    return _unwrapped([(parts[depth:], each) for parts, each in entries if parts[:depth] == prefix and parts[depth:]])


def _folder_entries(root: Path) -> Iterator[_Entry]:
    for parent, folders, files in walk(root):
        parts = Path(parent).relative_to(root).parts
        for name in files if files or folders or not parts else [""]:
            yield (*parts, name), os.path.join(parent, name)


def _zip_entries(path: Path) -> Iterator[_Entry]:
    if not path.exists():
        raise DataError(f"{path}: no such folder or zip; name a folder that holds one folder of pictures per class")
    if path.suffix.lower() != ".zip" or not path.is_file():
        raise DataError(
            f"{path}: a file, not a folder; name a folder with one folder of pictures per class, or a .zip of it"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a readable zip file ({error}); pack it again") from error
    for member in members:
        parts = PurePosixPath(member.filename.replace("\\", "/")).parts
        if parts and not any(map(is_litter, parts)):
            yield (*parts, "") if member.is_dir() else parts, member


def _unwrapped(entries: list[_Entry]) -> list[_Entry]:
    """Without the lone folder around all class folders; a lone folder of pictures is a class."""
    while True:
        tops = {parts[0] for parts, _ in entries if len(parts) > 1}
        pictures = [parts for parts, _ in entries if is_picture(parts[-1])]
        least = min(map(len, pictures), default=0)
        below = {parts[1] for parts in pictures if len(parts) > 2}
        if len(tops) != 1 or least < 2 or (least == 2 and len(below) < 2):
            return entries
        entries = [(parts[1:] if len(parts) > 1 else parts, handle) for parts, handle in entries]


def _refuse_no_classes(where: Path, loose: int) -> NoReturn:
    if loose:
        raise DataError(
            f"{where}: {loose} pictures lie directly in it, and no class folder does; "
            "put the pictures of each class into a folder named after the class"
        )
    raise DataError(f"{where}: no pictures and no class folders in it; it must hold one folder of pictures per class")
