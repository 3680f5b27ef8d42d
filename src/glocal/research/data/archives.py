"""Zips and tars of other people: what may be in them, and how they are read without trusting them.

Nothing is written to the disk.  A name must stay inside the archive and occur once; links, devices and encrypted
entries are refused; sizes are judged by what the archive declares and again while it is unpacked.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Self, TypeAlias

from glocal.common.errors import DataError

_DAMAGE = (
    OSError,
    RuntimeError,
    EOFError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
)
_MAX_TAR_HEADER = 1 << 20  # bytes of a long name or a pax record, which tarfile reads at once
_MAGIC = {b"PK\x03\x04": "zip", b"PK\x05\x06": "zip", b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz"}
_ZIP_END = 22 + 0xFFFF  # bytes: the record that ends a zip, and the longest comment in it
_UTF8 = 0x800  # flag of an entry whose name is not in the character set of DOS
_ZIP64 = 0xFFFF  # entries: that many or more, counted elsewhere
_STEP = 256 << 10  # bytes: zipfile and tarfile hold several copies of what they read at once
Wanted: TypeAlias = Callable[[str], bool]


@dataclass(frozen=True)
class Limits:
    """How much an archive may unpack to."""

    member: int = 32 << 30  # bytes of one member; the largest real one, an array of tieredImageNet, has 9.5 GB
    total: int = 256 << 30  # bytes of all members
    ratio: int = 200  # what is large and grows more than this is a bomb, not pictures
    ratio_matters_from: int = 64 << 20  # bytes: an honest white BMP grows a thousandfold, to less than this


LIMITS = Limits()


def oversized(size: int, packed: int, limits: Limits = LIMITS) -> str | None:
    """What is wrong with unpacking ``packed`` bytes to ``size``, as the end of a sentence; None when nothing is."""
    if size > limits.member:
        return f"unpacks to {size:,} bytes, more than {limits.member:,} allowed"
    ratio = size / max(1, packed)
    if size > limits.ratio_matters_from and ratio > limits.ratio:
        return f"unpacks to {ratio:.0f} times its size, more than {limits.ratio} allowed for a large one"
    return None


def archive_kind(path: Path) -> str | None:
    """ "zip", "tar", "gz", "bz2" or "xz" by the first bytes, whatever the file is called; None for anything else."""
    with path.open("rb") as file:
        head = file.read(512)
    found = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
    return found or ("tar" if head[257:262] == b"ustar" else None)


def zip_entries(path: Path) -> list[zipfile.ZipInfo]:
    """The files in a zip, in its own order; names, links, encryption and repetitions are judged, sizes are not."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
        declared = _declared_entries(path)
        _check_own_names(path, entries)
    except (*_DAMAGE, NotImplementedError) as error:
        raise DataError(f"{path}: not a readable zip file ({error}); pack it again") from error
    if declared not in (_ZIP64, len(entries)):
        raise DataError(f"{path}: damaged: its directory must list {declared} entries, and {len(entries)} can be found")
    names: set[str] = set()
    for entry in entries:
        mode = stat.S_IFMT(entry.external_attr >> 16)  # 0 where the packer was no Unix program
        if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
            _refuse_special(path, entry.filename)
        if entry.flag_bits & 0x1:
            raise DataError(f"{path}: entry {entry.filename!r} is encrypted; unpack it and pass the folder")
        inner_name(path, entry.filename, names)
    return [entry for entry in entries if not entry.is_dir()]


def read_members(
    path: Path, *, wanted: Wanted | None = None, limits: Limits = LIMITS
) -> Iterator[tuple[str, BinaryIO]]:
    """(name, stream) of every file in a zip or tar in its own order, or of those whose name is ``wanted``.

    A stream is good until the next member is asked for, cannot seek, and refuses by itself to go beyond the limits.
    """
    kind = archive_kind(path) if path.is_file() else None
    if kind is None:
        raise DataError(f"{path}: not a zip, tar, tar.gz, tar.bz2 or tar.xz file; name an archive or a folder")
    yield from (_zip_members if kind == "zip" else _tar_members)(path, wanted or (lambda name: True), limits)


def _declared_entries(path: Path) -> int:
    """How many entries the end of a zip says there are; zipfile does not miss those that damage makes it pass over."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _ZIP_END))
        tail = file.read()
    at = tail.rfind(b"PK\x05\x06") + 10
    return int.from_bytes(tail[at : at + 2], "little")


def _check_own_names(path: Path, entries: list[zipfile.ZipInfo]) -> None:
    """zipfile compares the two names of an entry when it is opened; one passed over because of its name never is."""
    with path.open("rb") as file:
        for entry in entries:
            file.seek(entry.header_offset)
            head = file.read(30)
            name = file.read(int.from_bytes(head[26:28], "little"))
            if name.decode("utf-8" if entry.flag_bits & _UTF8 else "cp437") != entry.orig_filename:
                raise zipfile.BadZipFile(f"its directory calls an entry {entry.orig_filename!r}, the entry itself not")


def inner_name(path: Path, name: str, seen: set[str]) -> str:
    """The name of a member with "/" between its parts; refused when it leads outside or was ``seen`` already."""
    slashed = name.replace("\\", "/")
    if slashed.startswith("/") or ".." in slashed.split("/") or slashed[1:2] == ":" or "\0" in slashed:
        raise DataError(f"{path}: entry {name!r} points outside the archive; pack the folders again")
    inner = str(PurePosixPath(slashed))
    if inner in seen and inner != ".":
        raise DataError(f"{path}: entry {name!r} is in it twice; pack the folders again")
    seen.add(inner)
    return inner


@contextmanager
def open_zip_member(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, limits: Limits) -> Iterator[BinaryIO]:
    """A member of a zip as a stream whose failures are DataErrors; its checksum is compared at its end."""
    reason = oversized(entry.file_size, entry.compress_size, limits)
    if reason is not None:
        raise DataError(f"{path}: entry {entry.filename!r} {reason}; leave it out of the archive")
    where = f"{path}: entry {entry.filename!r}"
    with _damage_of(where):
        inner = archive.open(entry)
    with inner:
        yield io.BufferedReader(_Checked(inner, where))


def _zip_members(path: Path, wanted: Wanted, limits: Limits) -> Iterator[tuple[str, BinaryIO]]:
    entries = zip_entries(path)
    # Entries may share their packed bytes, so that each is modest and all together are not.
    total = sum(entry.file_size for entry in entries)
    _check_total(path, total, path.stat().st_size, limits)
    with zipfile.ZipFile(path) as archive:
        for entry in entries:
            name = inner_name(path, entry.filename, set())
            if wanted(name):
                with open_zip_member(path, archive, entry, limits) as stream:
                    yield name, stream


def _tar_members(path: Path, wanted: Wanted, limits: Limits) -> Iterator[tuple[str, BinaryIO]]:
    seen: set[str] = set()
    opener: dict[str | None, Any] = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}
    opened = opener.get(archive_kind(path), nullcontext)
    with _damage_of(str(path)), path.open("rb") as packed, opened(packed) as plain:
        checked = _Checked(plain, str(path), lambda n: _check_total(path, n, packed.tell(), limits))
        metered: Any = io.BufferedReader(checked)
        with tarfile.open(fileobj=metered, mode="r|", tarinfo=_CheckedHeader) as archive:
            while (member := archive.next()) is not None:
                name = inner_name(path, member.name, seen)
                if member.isdir():
                    continue
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
                    _refuse_special(path, member.name)
                if member.size > limits.member:
                    raise DataError(f"{path}: entry {member.name!r} {oversized(member.size, member.size, limits)}")
                if wanted(name):
                    inner = archive.extractfile(member)
                    yield name, io.BufferedReader(_Checked(inner, f"{path}: entry {member.name!r}"))
                archive.members.clear()  # type: ignore[attr-defined]  # tarfile would keep every header it has seen
        while metered.read(_STEP):  # gzip and its kin compare their checksum at the very end
            pass


class _CheckedHeader(tarfile.TarInfo):
    """tarfile takes a damaged header for the end of the archive, and would silently leave out what follows."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        if len(buf) == tarfile.BLOCKSIZE and not any(buf):
            return super().frombuf(buf, encoding, errors)  # raises what tarfile takes for the end
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            raise EOFError(f"{error}, where the header of a file or the end mark must be") from None
        if header.size > _MAX_TAR_HEADER and header.type in (b"L", b"K", b"x", b"g", b"X"):
            raise EOFError(f"a name of {header.size:,} bytes")
        return header


class _Checked(io.RawIOBase):
    """A stream whose failures are DataErrors, and that reports how much was read so far."""

    def __init__(self, inner: Any, where: str, meter: Callable[[int], None] | None = None) -> None:
        self._inner, self._where, self._meter, self._done = inner, where, meter, 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._done

    def readinto(self, buffer: Any) -> int:
        with _damage_of(self._where):
            data = self._inner.read(min(len(buffer), _STEP))
        buffer[: len(data)] = data
        self._done += len(data)
        if self._meter is not None:
            self._meter(self._done)
        return len(data)


@contextmanager
def _damage_of(where: str) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except (*_DAMAGE, NotImplementedError, RecursionError) as error:
        what = str(error) or type(error).__name__
        raise DataError(f"{where}: damaged, cut short or of a rare kind ({what}); copy or pack it again") from error


def _check_total(path: Path, size: int, packed: int, limits: Limits) -> None:
    if size > limits.total:
        raise DataError(f"{path}: the archive unpacks to more than {limits.total:,} bytes, which is not allowed")
    if size > limits.ratio_matters_from and size > limits.ratio * packed:
        raise DataError(f"{path}: the archive unpacks to more than {limits.ratio} times its size, as no pictures do")


def _refuse_special(path: Path, name: str) -> None:
    raise DataError(
        f"{path}: entry {name!r} is a link, a device or sparse, not a plain file; pack the files themselves"
    )
