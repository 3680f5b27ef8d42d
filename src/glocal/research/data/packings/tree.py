"""The files below a path, whether it is a folder, a zip, a tar or a single file; nothing is unpacked to the disk.

Names have "/" between their parts.  What operating systems leave behind is passed over, and so is a lone folder
around everything, as packing a folder leaves it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from glocal.common.errors import DataError
from glocal.recognizer.photos.folders import LARGEST_MEMBER, is_litter, walk
from glocal.recognizer.photos.images import UnusableImage, is_picture
from glocal.research.data.archives import archive_kind, inner_name, read_members, zip_entries

_TABLES = frozenset({".csv", ".pkl", ".pickle", ".npz"})
_BARE = frozenset({"train", "test", "meta"})  # files of cifar-100-python
_MAX_TEXT = 64 << 20  # bytes: the largest real list, tieredImageNet's, has 30 MB


@dataclass(frozen=True)
class Tree:
    """Files by name; ``stored`` says under which name each is found below ``base``, a folder or an archive."""

    path: Path  # what was given
    base: Path
    stored: Mapping[str, str]
    key: str  # changes when a name, a size or a time of change does
    empty: tuple[str, ...] = ()  # folders without a file

    @property
    def names(self) -> Collection[str]:
        return self.stored.keys()

    @cached_property
    def is_archive(self) -> bool:
        return self.base.is_file()

    @cached_property
    def pictures(self) -> list[str]:
        return [name for name in self.stored if is_picture(name)]

    def where(self, name: str) -> str:
        """What a person would look for."""
        return f"{self.base}:{self.stored[name]}" if self.is_archive else str(self.base / self.stored[name])

    def read(self, names: Collection[str]) -> Iterator[tuple[str, bytes | UnusableImage]]:
        """The pictures named, those of an archive in its own order; what cannot be read says why."""
        if not self.is_archive:
            for name in names:
                yield name, _file_bytes(self.base / self.stored[name])
            return
        wanted = {self.stored[name]: name for name in names}
        if not wanted:
            return
        for stored, stream in read_members(self.base, wanted=wanted.__contains__):
            yield wanted[stored], _stream_bytes(stream, self.where(wanted[stored]), self._is_zip)
            del wanted[stored]
            if not wanted and self._is_zip:
                return  # what follows in a tar is read too: it compares its checksum at the end

    def text(self, name: str) -> str:
        """A small list."""
        with self.local(name) as path:
            if path.stat().st_size > _MAX_TEXT:
                raise DataError(f"{self.where(name)}: a list must have at most {_MAX_TEXT:,} bytes")
            try:
                return path.read_text("utf-8-sig")
            except (UnicodeDecodeError, OSError) as error:
                raise DataError(f"{self.where(name)}: not text in UTF-8 ({error}); save it as such") from error

    @contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """A file that can be memory-mapped: the file itself, or a copy of an archive's member that goes afterwards."""
        if not self.is_archive:
            yield self.base / self.stored[name]
            return
        with tempfile.TemporaryDirectory(prefix="glocal-") as home:
            copy = Path(home) / PurePosixPath(name).name
            for _, stream in read_members(self.base, wanted=self.stored[name].__eq__):
                with copy.open("wb") as file:
                    shutil.copyfileobj(stream, file, 1 << 20)
                break
            yield copy

    @cached_property
    def _is_zip(self) -> bool:
        return archive_kind(self.base) == "zip"


def open_tree(path: Path) -> Tree:
    """Look at a path; only names, sizes and times are read."""
    if path.is_dir():
        names, empty = _walk(path)
        return Tree(path, path, _unwrapped(names), f"{path.absolute()} {signature(path, names)}", empty)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file or folder; name what the data set is in")
    key = f"{path.absolute()} {signature(path.parent, [path.name])}"
    try:
        kind = archive_kind(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    if kind is None or path.suffix.lower() == ".npz":
        return Tree(path, path.parent, {path.name: path.name}, key)
    if kind == "zip":
        members = [inner_name(path, entry.filename, set()) for entry in zip_entries(path)]
    else:
        members = [name for name, _ in read_members(path)]
    kept = [name for name in members if not any(is_litter(part) for part in PurePosixPath(name).parts)]
    return Tree(path, path, _unwrapped(kept), key)


def _unwrapped(names: list[str]) -> dict[str, str]:
    """Names without the lone folders around them -> names as they are."""
    stored = {name: name for name in names}
    while True:
        tops = {name.partition("/")[0] for name in stored if "/" in name}
        loose = [name for name in stored if "/" not in name]
        if len(tops) != 1 or any(_is_data(name) for name in loose):
            return stored
        inner = {name.partition("/")[2]: at for name, at in stored.items() if "/" in name}
        if any("/" not in name and is_picture(name) for name in inner):
            return stored  # the lone folder is a class
        stored = inner


def _is_data(name: str) -> bool:
    return is_picture(name) or PurePosixPath(name).suffix.lower() in _TABLES or name in _BARE


def _walk(root: Path) -> tuple[list[str], tuple[str, ...]]:
    """Names of all files in a fixed order, and of the folders without any."""
    names: list[str] = []
    empty: list[str] = []
    for parent, folders, kept in walk(root):
        inner = os.path.relpath(parent, root).replace(os.sep, "/")
        prefix = "" if inner == "." else f"{inner}/"
        names += [prefix + name for name in kept]
        if prefix and not kept and not folders:
            empty.append(inner)
    return names, tuple(empty)


def signature(base: Path, names: list[str]) -> str:
    """Hash of names, sizes and times of change of files below a folder."""
    digest = hashlib.sha256()
    for name in names:
        try:
            found = os.stat(os.path.join(base, name))
            stamp = f"{found.st_size} {found.st_mtime_ns}"
        except OSError:  # a link that leads nowhere is told when it is read
            stamp = "-"
        digest.update(f"{name}\0{stamp}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _file_bytes(path: Path) -> bytes | UnusableImage:
    try:
        if not path.is_file():  # opening a named pipe would wait for ever
            return UnusableImage(str(path), "there is no such file, or it is not a regular one; check the path")
        if path.stat().st_size > LARGEST_MEMBER:
            return UnusableImage(str(path), f"a picture file must have at most {LARGEST_MEMBER:,} bytes")
        return path.read_bytes()
    except OSError as error:
        return UnusableImage(str(path), f"the file cannot be read ({error.strerror}); check its permissions")


def _stream_bytes(stream: object, where: str, is_zip: bool) -> bytes | UnusableImage:
    try:
        data: bytes = stream.read(LARGEST_MEMBER + 1)  # type: ignore[attr-defined]
    except DataError as error:
        if not is_zip:
            raise  # nothing after the damage can be read
        return UnusableImage(where, f"its entry is damaged; pack it again ({error})")
    if len(data) > LARGEST_MEMBER:
        return UnusableImage(where, f"a picture file must have at most {LARGEST_MEMBER:,} bytes")
    return data
