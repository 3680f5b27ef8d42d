"""Zips and tars that lead outside, blow up or came to harm."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile import hostile

_BOMB, _CUT = "the archive unpacks to more than 200 times its size", "damaged, cut short"


def _zip(path: Path, *names: str, content: bytes = b"content", method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), content, method)


def _tar(path: Path, *names: str, mode: str = "w", content: bytes = b"content", kind: bytes = tarfile.REGTYPE) -> None:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name in names:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, "target" if kind in b"12" else "", len(content)
            archive.addfile(member, io.BytesIO(content))


for _kind, _write in {"zip": _zip, "tar": _tar}.items():
    for _label, _name in {
        "dots": "a/../../b.png",
        "absolute": "/a/b.png",
        "drive": "C:/b.png",
        "back": "a\\..\\b.png",
    }.items():
        hostile(f"{_label}.{_kind}", "points outside the archive")(lambda path, w=_write, n=_name: w(path, "ok.png", n))


@hostile("link.zip", "is a link, a device or sparse")
def _(path: Path) -> None:
    entry = zipfile.ZipInfo("a/1.png")
    entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(entry, "/etc/passwd")


for _label, _type in {
    "link": tarfile.SYMTYPE,
    "hard-link": tarfile.LNKTYPE,
    "device": tarfile.CHRTYPE,
    "pipe": tarfile.FIFOTYPE,
}.items():
    hostile(f"{_label}.tar", "is a link, a device or sparse")(
        lambda path, k=_type: _tar(path, "a", kind=k, content=b"")
    )


@hostile("encrypted.zip", "is encrypted")
def _(path: Path) -> None:
    _zip(path, "a/1.png")
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(raw)


def _many(path: Path, *, apart: bool) -> None:
    """Thirty entries, each below the limit, that all unpack to 4 MiB: of bytes of their own, or of the same bytes."""
    _zip(path, "a/00.png", content=bytes(4 << 20))
    raw = path.read_bytes()
    start, end = raw.index(b"PK\x01\x02"), raw.index(b"PK\x05\x06")
    packed, entries = b"", b""
    for i in range(30):
        name = b"%02d.png" % i
        entry = raw[start:end].replace(b"00.png", name)
        entries += entry[:42] + struct.pack("<I", len(packed) if apart else 0) + entry[46:]
        packed += raw[:start].replace(b"00.png", name) if apart or not i else b""
    path.write_bytes(
        packed + entries + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 30, 30, len(entries), len(packed), 0)
    )


hostile("many-bomb.zip", _BOMB)(lambda path: _many(path, apart=True))
hostile("overlapping-bomb.zip", "its directory calls an entry 'a/01.png'")(lambda path: _many(path, apart=False))


@hostile("long-name.tar.gz", "a name of 80,000,000 bytes")
def _(path: Path) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 80_000_000
    path.write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(10240)))


def changed(write: Callable[[Path], object], change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: (write(path), path.write_bytes(change(path.read_bytes())))


def _renamed_in_directory(raw: bytes) -> bytes:
    head, mark, directory = raw.partition(b"PK\x01\x02")
    return head + mark + directory.replace(b"a/2.png", b"a/2.pog")


def zip_of(*names: str, **how: Any) -> Callable[[Path], object]:
    return lambda path: _zip(path, *names, **how)


def tar_of(*names: str, **how: Any) -> Callable[[Path], object]:
    return lambda path: _tar(path, *names, **how)


_TWO, _NOISE = ("a/1.png", "a/2.png"), os.urandom(50_000)
_cases: tuple[tuple[str, str, Callable[[Path], object]], ...] = (
    ("twice.zip", "is in it twice", changed(zip_of(*_TWO), lambda raw: raw.replace(b"a/2.png", b"a/1.png"))),
    ("twice.tar", "is in it twice", tar_of("a/1.png", "./a/1.png")),
    ("bomb.zip", "times its size", lambda path: _zip(path, "a/1.png", content=bytes(80 << 20))),
    ("bomb.tar.gz", _BOMB, lambda path: _tar(path, "a/1.png", mode="w:gz", content=bytes(80 << 20))),
    (
        "checksum.zip",
        _CUT,
        changed(zip_of("a/1.png", method=zipfile.ZIP_STORED), lambda raw: raw.replace(b"content", b"conTent")),
    ),
    # An entry that its name would let everybody pass over.
    ("two-names.zip", "its directory calls an entry 'a/2.pog'", changed(zip_of(*_TWO), _renamed_in_directory)),
    ("cut.zip", "not a readable zip file", changed(zip_of("a/1.png"), lambda raw: raw[:-30])),
    # Damage in the second header, after which a lenient reader would stop as if all were well.
    ("header.tar", _CUT, changed(tar_of(*_TWO), lambda raw: raw.replace(b"a/2.png", b"a/3.png"))),
    ("cut.tar", _CUT, changed(tar_of(*_TWO), lambda raw: raw[:1024])),  # right between two members
    ("cut.tar.gz", _CUT, changed(tar_of("a/1.png", mode="w:gz", content=_NOISE), lambda raw: raw[:20_000])),
    ("no-tar.tar.bz2", _CUT, lambda path: path.write_bytes(bz2.compress(b"text" * 1000))),
)
for _label, _words, _file in _cases:
    hostile(_label, _words)(_file)
