"""A server whose disk fails it: full, write-protected, its folders deleted, its copies damaged."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from glocal.serve.workspace import Workspace
from glocal_runtime import Recognizer
from refusal import refused
from serving import client, detail, ok, taught_names, tiny_file


def full(*given: object, **how: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_undo_with_a_damaged_copy_keeps_the_recognizer(tmp_path: Path) -> None:
    file = tiny_file(tmp_path)
    with client(file) as asking:
        ok(asking.patch("/classes/one", json={"name": "uno"}))
        good = file.read_bytes()
        for copy in (tmp_path / "digits.glocal.history/versions").iterdir():
            copy.write_bytes(b"")
        refusal = asking.post("/undo")
        assert "damaged" in detail(refusal, 422, "rule")
        assert refusal.json()["code"] == "damaged-version"
        assert file.read_bytes() == good
        assert taught_names(asking) == ["zero", "uno"]
        ok(asking.patch("/classes/uno", json={"name": "un"}))


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
    first.rename_class("one", "uno")
    assert first.snapshot.classes == ("zero", "uno")
    first.close()


def test_a_folder_that_takes_nothing_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tiny_file(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        with refused("not-written", "No space left"):
            Workspace(file, device="cpu")
    Workspace(file, device="cpu").close()


def test_a_link_to_the_file_stays_a_link_and_the_copies_are_private(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    file = tiny_file(tmp_path / "real")
    file.chmod(0o600)
    link = tmp_path / "parts.glocal"
    link.symlink_to(file)
    served = Workspace(link, device="cpu")
    served.rename_class("one", "uno")
    served.undo()
    served.close()
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "real/digits.glocal.history").stat().st_mode & 0o077 == 0
