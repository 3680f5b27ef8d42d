"""SIGKILL while changes are saved: the file is always a whole version, the old one or the new one."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glocal.serve.history import History
from glocal.serve.workspace import Workspace
from glocal_runtime import Recognizer

PROCESSES = multiprocessing.get_context("forkserver")  # every child a real process that holds nothing of this one
PROCESSES.set_forkserver_preload(["glocal.serve.workspace"])


def sha(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def change(workspace: Workspace) -> None:
    """Forth by a change and back by undo: both ways of writing the file, which takes few shapes."""
    if "one" in workspace.snapshot.classes:
        workspace.rename_class("one", "uno")
    elif workspace.snapshot.undo_label is not None:
        workspace.undo()
    else:
        workspace.rename_class("uno", "one")


def stretch_the_saves() -> None:
    """Every step of a save takes a while, so that a kill meets it half done: a tiny file is written in no time."""

    def copyfile(source: Path, target: Path) -> None:
        data = source.read_bytes()
        with open(target, "wb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            time.sleep(0.004)
            file.write(data[len(data) // 2 :])

    plain_replace, plain_write = os.replace, zipfile.ZipFile.writestr

    def replace(source: Path, target: Path) -> None:
        time.sleep(0.002)
        plain_replace(source, target)
        time.sleep(0.002)

    def writestr(archive: zipfile.ZipFile, *given: Any) -> None:
        plain_write(archive, *given)
        time.sleep(0.0005)

    shutil.copyfile, os.replace, zipfile.ZipFile.writestr = copyfile, replace, writestr  # type: ignore


def keep_changing(file: Path) -> None:
    stretch_the_saves()
    workspace = Workspace(file, device="cpu")

    def told(save: Any) -> Any:
        def saving(history: History, *given: Any) -> None:
            (file.parent / "saving").touch()
            save(history, *given)
            (file.parent / "saving").unlink()

        return saving

    History.push, History.step = told(History.push), told(History.step)  # type: ignore[method-assign]
    while True:
        change(workspace)


def shapes(file: Path) -> dict[str, tuple[str, ...]]:
    """Hash of every file that there may be -> its classes."""
    workspace = Workspace(file, device="cpu")
    found = {sha(file): workspace.snapshot.classes}
    for old, new in (("one", "uno"), ("uno", "one")):
        workspace.rename_class(old, new)
        found[sha(file)] = workspace.snapshot.classes
    workspace.close()
    return found


def kill(tmp_path: Path, times: int) -> int:
    """How often a file was half written, or the journal ahead of the file."""
    from serving import tiny_file  # here, because every child imports this module

    (tmp_path / "known").mkdir()
    known = shapes(tiny_file(tmp_path / "known"))
    file = tiny_file(tmp_path)
    rng = np.random.default_rng()  # other moments on every run
    cut = 0
    for _ in range(times):
        saving = tmp_path / "saving"
        saving.unlink(missing_ok=True)
        process = PROCESSES.Process(target=keep_changing, args=(file,))
        process.start()
        for _ in range(rng.integers(1, 3)):  # each of the two kinds of change
            while saving.exists():
                time.sleep(0.0005)
            while not saving.exists():
                assert process.is_alive()
                time.sleep(0.0005)
        time.sleep(float(rng.uniform(0, 0.03)))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        found = sha(file)
        journal = json.loads((tmp_path / f"{file.name}.history" / "journal.json").read_text())
        ahead = journal["entries"][journal["at"]]["sha256"] != found
        cut += ahead or bool(list(tmp_path.rglob("*.partial")))
        assert found in known
        assert Recognizer.load(file, device="cpu").classes == known[found]
        saving.unlink(missing_ok=True)
        assert {path.name for path in tmp_path.iterdir()} == {"known", file.name, f"{file.name}.history"}
        again = Workspace(file, device="cpu")  # a lock of the dead holds nobody up
        assert (again.snapshot.classes, sha(file)) == (known[found], found)
        if again.snapshot.undo_label is not None:
            again.undo()
            assert sha(file) in known
            again.redo()
            assert sha(file) == found
        again.close()
        assert not list(tmp_path.rglob("*.partial"))
    return cut


def test_killed_while_saving(tmp_path: Path) -> None:
    kill(tmp_path, 3)


@pytest.mark.long
def test_killed_while_saving_fifty_times(tmp_path: Path) -> None:
    cut = kill(tmp_path, 50)
    print(f"{cut} of 50 kills cut a change short")
    assert cut >= 10
