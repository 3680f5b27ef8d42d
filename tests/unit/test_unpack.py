"""Zips and tars: what leads outside, blows up or came to harm is refused, and nothing is left behind."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from glocal.common.errors import DataError
from glocal.research.data import prepare as unpack
from glocal.research.data.prepare import unpacked
from refusal import refused

NAMES = ("a/1.png", "a/2.png", "b/1.png")
NOISE = os.urandom(50_000)


def zipped(path: Path, *names: str, content: bytes = b"content") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, content)
    return path


def tarred(path: Path, *names: str, content: bytes = b"content", kind: bytes = tarfile.REGTYPE) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "../../target"
            member.size = len(content) if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(content))
    return path


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("write", [zipped, tarred])
def test_an_archive_is_unpacked_once(tmp_path: Path, write: Callable[..., Path]) -> None:
    source, home = write(tmp_path / "archive", *NAMES), tmp_path / "home"
    home.mkdir()
    folder = unpacked(source, home)
    assert (files(folder), folder.parent) == (set(NAMES), home)
    (folder / "a/1.png").unlink()
    assert files(unpacked(source, home)) == {*NAMES[1:]}
    write(source, *NAMES[:2])
    assert files(unpacked(source, home)) == {*NAMES[:2]}
    assert unpacked(folder, home) == folder


def test_nothing_leaves_the_folder(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"
    home.mkdir(parents=True)
    for i, name in enumerate(("../../x.png", "a/../../../x.png")):
        with refused("data", "cannot be unpacked"):
            unpacked(tarred(tmp_path / f"{i}.tar", name), home)
        unpacked(zipped(tmp_path / f"{i}.zip", name), home)  # its name without what leads outside
    assert files(unpacked(tarred(tmp_path / "absolute.tar", "/x.png"), home)) == {"x.png"}
    for i, kind in enumerate((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE)):
        with refused("data", "cannot be unpacked"):
            unpacked(tarred(tmp_path / f"special{i}.tar", "a", kind=kind), home)
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"home"}
    assert not (tmp_path / "target").exists()
    assert not Path("/x.png").exists()


def test_bombs_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "GROWTH_FROM", 1 << 20)
    bombs = [zipped(tmp_path / "bomb.zip", "a.png", content=bytes(4 << 20))]
    bombs += [tarred(tmp_path / "bomb.tar.gz", *NAMES, content=bytes(1 << 20))]
    for bomb in bombs:
        with refused("data", "it unpacks to more than"):
            unpacked(bomb, tmp_path / "home")
    written = sum(path.stat().st_size for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert written <= 1 << 20
    monkeypatch.setattr(unpack, "MOST_FILES", 2)
    with refused("data", "more than 2 files"):
        unpacked(zipped(tmp_path / "many.zip", *NAMES), tmp_path / "home")


def test_damage_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    whole = tarred(tmp_path / "whole.tar.gz", *NAMES, content=NOISE).read_bytes()
    packed = zipped(tmp_path / "whole.zip", *NAMES, content=NOISE).read_bytes()
    for name, damaged in (
        ("cut.tar.gz", whole[:60_000]),
        ("checksum.zip", packed[:2000] + bytes([packed[2000] ^ 1]) + packed[2001:]),
    ):
        (tmp_path / name).write_bytes(damaged)
        with refused("data", name, "cannot be unpacked"):
            unpacked(tmp_path / name, tmp_path / "home")
    (tmp_path / "cut.zip").write_bytes(packed[:-30])
    (tmp_path / "data.npz").write_bytes(packed)
    for name in ("cut.zip", "data.npz"):
        with refused("data", name, "neither a folder nor a zip or tar"):
            unpacked(tmp_path / name, tmp_path / "home")
    with pytest.raises(DataError, match="no such file or folder"):
        unpacked(tmp_path / "absent", tmp_path / "home")
