"""A server whose disk fails it: full, write-protected, its folders deleted, its copies damaged."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from faults import full
from glocal.recognizer import Recognizer
from glocal.serve import log
from glocal.serve.workspace import Workspace
from refusal import refused
from serving import client, detail, ok, rename, taught_names, teach, tiny_file, uploads


def test_every_step_of_a_change_may_meet_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tiny_file(tmp_path)
    sync, failing = os.fsync, 0
    with client(file) as asking:
        ok(asking.patch("/classes/one", json={"name": "uno"}))
        for moment in range(20):
            left = moment

            def fsync(opened: int) -> None:
                nonlocal left
                left -= 1
                full() if left < 0 else sync(opened)

            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", fsync)
                renamed = asking.patch("/classes/uno", json={"name": "un"})
            if renamed.status_code == 200:
                break
            assert renamed.json()["code"] == "not-written"
            failing += 1
            there = Recognizer.load(file, device="cpu").classes
            ok(asking.put("/threshold", json={"value": 1.0}))  # of the file as it is
            assert there == tuple(taught_names(asking)) == Recognizer.load(file, device="cpu").classes
            ok(asking.post("/undo"))
            if taught_names(asking) == ["zero", "un"]:  # in the file before the last step failed
                ok(asking.post("/undo"))
            assert taught_names(asking) == ["zero", "uno"]
        assert failing >= 6
        assert not list(tmp_path.rglob("*.partial"))


def test_a_second_server_is_refused_also_when_the_history_was_deleted(tmp_path: Path) -> None:
    file = tiny_file(tmp_path)
    first = Workspace(file, device="cpu")
    shutil.rmtree(tmp_path / "digits.glocal.history")
    with refused("already-served", str(file)):
        Workspace(file, device="cpu")
    rename(first, "one", "uno")
    assert first.snapshot.classes == ("zero", "uno")
    first.close()


def test_a_link_to_the_file_stays_a_link_and_the_copies_are_private(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    file = tiny_file(tmp_path / "real")
    file.chmod(0o600)
    link = tmp_path / "parts.glocal"
    link.symlink_to(file)
    served = Workspace(link, device="cpu")
    rename(served, "one", "uno")
    served.go(-1)
    served.close()
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "real/digits.glocal.history").stat().st_mode & 0o077 == 0


def test_a_download_that_the_disk_does_not_give_is_a_sentence(tmp_path: Path) -> None:
    file = tiny_file(tmp_path)
    with client(file) as asking:
        file.rename(tmp_path / "elsewhere.glocal")
        file.mkdir()
        refusal = asking.get("/export/file")
        assert detail(refusal, 422, "rule")
        assert refusal.json()["code"] == "not-read"


@pytest.mark.parametrize("what", ["change", "undo"])
def test_a_history_that_was_deleted_comes_back_as_private_as_it_was(tmp_path: Path, what: str) -> None:
    """The first version is no file: to undo needs no copy."""
    file = tmp_path / "digits.glocal"
    with client(file) as asking:
        teach(asking, ("zero",), 2)
        folder = tmp_path / "digits.glocal.history"
        shutil.rmtree(folder)
        if what == "change":
            ok(asking.patch("/classes/zero", json={"name": "null"}))
            assert list(folder.glob("parts/*"))
        else:
            ok(asking.post("/undo"))
    assert folder.stat().st_mode & 0o077 == 0


def test_a_folder_that_vanishes_is_an_error_and_taken_up_again(tmp_path: Path) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    with client(tiny_file(home)) as asking:
        home.rename(away)
        for refusal in (
            asking.get("/state"),
            asking.post("/predict", files=uploads("one", 0, 1)),
            asking.patch("/classes/one", json={"name": "uno"}),
            asking.post("/undo"),
        ):
            assert str(home) in detail(refusal, 422, "rule")
            assert refusal.json()["code"] == "folder-gone"
        assert not home.exists()
        away.rename(home)
        assert taught_names(asking) == ["zero", "one"]
        ok(asking.patch("/classes/one", json={"name": "uno"}))


def test_what_a_file_says_of_itself_moves_no_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is read in a terminal."""
    monkeypatch.setattr(log, "EVERY", 0.0)  # another test may have told of such a file
    file, told = tiny_file(tmp_path), io.StringIO()
    handler, logger = logging.StreamHandler(told), logging.getLogger("glocal.serve")
    with client(file) as asking:
        logger.addHandler(handler)
        try:
            members = {name: data for name, data in archive_of(file).items() if name != "manifest.json"}
            manifest = json.loads(archive_of(file)["manifest.json"])
            manifest |= {"schema_version": 999, "version": "9\x1b[2J\x9b1m\nERROR all is well"}
            with zipfile.ZipFile(file, "w") as archive:
                for name, data in {"manifest.json": json.dumps(manifest).encode(), **members}.items():
                    archive.writestr(name, data)
            assert taught_names(asking) == ["zero", "one"]
            logger.error("%s", "\x1b[2J", exc_info=ValueError("\x1b[2J"))
        finally:
            logger.removeHandler(handler)
    lines = told.getvalue().splitlines()
    assert "newer glocal (9" in lines[0]
    assert "all is well" in lines[0]
    assert "ValueError" in lines[-1]
    assert all(each.isprintable() for each in lines)


def archive_of(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
