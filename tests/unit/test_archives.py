"""Archives: what is in them, and what is refused before or while it is unpacked."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

import hostile_archives  # noqa: F401
from glocal.common.errors import DataError
from glocal.research.data.archives import Limits, archive_kind, read_members
from hostile import HOSTILE

FILES = {"train/a/1.png": b"one", "train/b/2.png": os.urandom(70_000), "readme.txt": b""}
KINDS = {"zip": "zip", "tar": "tar", "tar.gz": "gz", "tar.bz2": "bz2", "tar.xz": "xz"}


def pack(path: Path, kind: str) -> Path:
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.mkdir("train")
            for name, content in FILES.items():
                archive.writestr(name, content)
        return path
    with tarfile.open(path, "w" if kind == "tar" else f"w:{KINDS[kind]}") as archive:  # type: ignore[call-overload]
        folder = tarfile.TarInfo("./train")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in FILES.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def read_all(path: Path, **settings: Limits) -> dict[str, bytes]:
    return {name: stream.read() for name, stream in read_members(path, **settings)}


@pytest.mark.parametrize("kind", KINDS)
def test_members_of_every_kind(tmp_path: Path, kind: str) -> None:
    path = pack(tmp_path / "archive.bin", kind)  # the name of the file says nothing
    assert archive_kind(path) == KINDS[kind]
    assert read_all(path) == FILES
    assert [name for name, _ in read_members(path)] == list(FILES)
    some = {name: stream.read(2) for name, stream in read_members(path, wanted=lambda name: name.endswith(".png"))}
    assert some == {"train/a/1.png": b"on", "train/b/2.png": FILES["train/b/2.png"][:2]}


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(member=60_000), "unpacks to 70,000 bytes, more than 60,000 allowed"),
        (Limits(total=60_000), "unpacks to more than 60,000 bytes"),
    ],
)
def test_limits(tmp_path: Path, kind: str, limits: Limits, words: str) -> None:
    path = pack(tmp_path / "archive", kind)
    with pytest.raises(DataError, match=words):
        read_all(path, limits=limits)


def test_a_tar_bomb_is_stopped_while_it_is_skipped(tmp_path: Path) -> None:
    """A member nobody wants must be unpacked to get past it, and counts too."""
    HOSTILE["bomb.tar.gz"](tmp_path / "bomb.tar.gz")
    with pytest.raises(DataError, match="200 times its size"):
        list(read_members(tmp_path / "bomb.tar.gz", wanted=lambda name: False))


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_text("text")
    for path in (tmp_path / "a.zip", tmp_path, tmp_path / "absent.tar"):
        with pytest.raises(DataError, match="not a zip, tar"):
            list(read_members(path))


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_a_flipped_byte_gives_the_right_files_or_a_sentence(tmp_path: Path, kind: str) -> None:
    content = pack(tmp_path / "archive", kind).read_bytes()
    refused = 0
    for at in [*range(0, 1600, 23), *range(len(content) - 300, len(content), 7)]:
        damaged = bytearray(content)
        damaged[at] ^= 0x41
        (tmp_path / "damaged").write_bytes(damaged)
        try:
            found = read_all(tmp_path / "damaged")
        except DataError:
            refused += 1
        else:
            # A plain tar has no checksum of contents, so these may change there; no file gets lost.
            assert list(found) == list(FILES) if kind == "tar" else found == FILES, at
    assert refused > 5
