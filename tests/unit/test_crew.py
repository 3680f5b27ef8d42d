"""Processes that die: every photo has its row once, and only the one that kills is blamed."""

from __future__ import annotations

import multiprocessing
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from glocal.bulk import crew as crews
from glocal.bulk.crew import Crew, Task
from looks import LengthLook
from refusal import refused
from waiting import PATIENCE

BATCH = 8


def cut(uris: list[str]) -> list[Task]:
    return [Task(0, at, tuple(uris[at : at + BATCH])) for at in range(0, len(uris), BATCH)]


def look_at(uris: list[str], folder: Path, size: int = 2) -> dict[int, dict[str, object]]:
    """Place -> row; a place that comes twice fails."""
    found: dict[int, dict[str, object]] = {}
    with Crew(partial(LengthLook, str(folder)), size) as members:
        for task, rows in members.run(cut(uris)):
            for i, row in enumerate(rows.to_pylist()):
                assert found.setdefault(task.at + i, row) is row
    return found


def test_photos_that_kill_are_errors_and_nothing_else_is(tmp_path: Path) -> None:
    uris = [f"photo {i}" for i in range(80)]
    uris[5], uris[41] = "a kills", "b kills-once"
    found = look_at(uris, tmp_path)
    assert [found[i]["uri"] for i in range(80)] == uris
    bad = {i for i, row in found.items() if row["error"] is not None}
    assert bad == {5}
    assert "signal 9" in str(found[5]["error"])
    assert all(found[i]["length"] == len(uri) for i, uri in enumerate(uris) if i not in bad)


def test_a_killed_process_is_replaced(tmp_path: Path) -> None:
    uris = [f"photo {i}" for i in range(160)]
    with Crew(partial(LengthLook, str(tmp_path), pause=0.02), 2) as members:
        found: list[str] = []
        for task, rows in members.run(cut(uris)):
            found += rows.column("uri").to_pylist()
            if task.at == 16:
                multiprocessing.active_children()[0].kill()
            assert rows.column("error").null_count == len(rows)
        assert sorted(found) == sorted(uris)
        again = [rows for _, rows in members.run(cut(uris[:20]))]  # the crew works on
    assert len(pa.Table.from_batches(again)) == 20


def test_what_no_process_could_do_better_stops_the_job(tmp_path: Path) -> None:
    (tmp_path / "refuse").touch()
    with refused("no-look"):
        look_at(["photo"], tmp_path, 1)
    (tmp_path / "refuse").unlink()
    (tmp_path / "die").touch()
    with refused("workers-die", "exit code 3", "--workers"):
        look_at(["photo"], tmp_path, 1)


def test_a_stuck_process_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(Crew):
        """With who works, not with who starts, which takes what the machine makes of it."""

        def _messages(self):
            working = all(member.ready for member in self._members)
            monkeypatch.setattr(crews, "PATIENCE", 1.0 if working else PATIENCE)
            yield from super()._messages()

    monkeypatch.setattr(crews, "TICK", 0.2)
    with Impatient(partial(LengthLook, str(tmp_path), pause=PATIENCE), 1) as members:
        [(_, rows)] = members.run([Task(0, 0, ("photo",))])
    assert rows.column("error").to_pylist()[0].startswith("it ended 2 processes")
