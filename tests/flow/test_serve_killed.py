"""SIGKILL at every step of saving a change: the file is always a whole version, the old one or the new one."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import zipfile
from pathlib import Path
from typing import Any

from apart import PROCESSES
from glocal.recognizer import Recognizer
from glocal.serve.workspace import Workspace


def sha(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def change_and_undo(file: Path, moment: int) -> None:
    """Both ways of writing the file; the process is killed at that step, before, after or half way through a write."""
    from serving import rename

    workspace, steps = Workspace(file, device="cpu"), itertools.count()

    def step() -> None:
        if next(steps) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def stepwise(write: Any) -> Any:
        def written(*given: Any) -> None:
            step()
            write(*given)
            step()

        return written

    def write_bytes(path: Path, data: bytes) -> None:
        with path.open("wb") as opened:
            opened.write(data[: len(data) // 2])
            opened.flush()
            step()
            opened.write(data[len(data) // 2 :])

    # A zip that is not closed lacks its end.
    Path.write_bytes, os.replace, zipfile.ZipFile.close = (  # type: ignore
        write_bytes,
        stepwise(os.replace),
        stepwise(zipfile.ZipFile.close),
    )
    rename(workspace, "one", "uno")
    workspace.go(-1)


def test_killed_at_every_step_of_a_change_and_of_its_undo(tmp_path: Path) -> None:
    from serving import rename, tiny_file  # here, because every child imports this module

    (tmp_path / "whole").mkdir()
    original = tiny_file(tmp_path / "whole")
    start = original.read_bytes()
    known = {sha(original): ("zero", "one")}
    workspace = Workspace(original, device="cpu")
    rename(workspace, "one", "uno")
    known[sha(original)] = ("zero", "uno")
    workspace.close()
    cut = 0
    for moment in itertools.count():
        home = tmp_path / str(moment)
        home.mkdir()
        file, history = home / "digits.glocal", home / "digits.glocal.history"
        file.write_bytes(start)
        process = PROCESSES.Process(target=change_and_undo, args=(file, moment))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        found = sha(file)
        assert Recognizer.load(file, device="cpu").classes == known[found]
        assert set(home.iterdir()) == {file, history, home / ".digits.glocal.lock"}
        journal = json.loads((history / "journal.json").read_text())
        ahead = journal["versions"][journal["at"]]["sha256"] != found
        cut += ahead or bool(list(home.rglob("*.partial")))
        again = Workspace(file, device="cpu")  # a lock of the dead holds nobody up
        assert (again.snapshot.classes, sha(file)) == (known[found], found)
        if again.snapshot.undo_label is not None:
            again.go(-1)
            assert sha(file) in known
            again.go(+1)
            assert sha(file) == found
        again.close()
        assert not list(home.rglob("*.partial"))
    assert moment >= 12
    assert cut >= 6, "of these kills some meet a half written file, or a journal ahead of it"
