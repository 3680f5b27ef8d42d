"""Processes that die: every photo has its row once, and only the one that kills is blamed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from glocal.bulk.workers import Workers
from glocal.common.errors import DataError
from refusal import refused

PART = 40


class Lengths:
    """A row per uri with its length.  A name with "kills" ends the process, with "kills-once" only the first one."""

    def __init__(self, folder: Path, pause: float = 0.0) -> None:
        self._folder, self._pause = folder, pause
        if (folder / "refuse").exists():
            raise DataError("there is no model", code="no-model")
        if (folder / "die").exists():
            os._exit(3)

    def of(self, uris: Sequence[str]) -> pa.Table:
        time.sleep(self._pause)
        for uri in uris:
            mark = self._folder / uri
            if "kills" in uri and not ("once" in uri and mark.exists()):
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.errors(uris, None)

    def errors(self, uris: Sequence[str], error: str | None) -> pa.Table:
        return pa.table({"uri": uris, "length": list(map(len, uris)), "error": pa.array([error] * len(uris), "str")})


def rows_of(workers: Workers, uris: list[str]) -> list[dict[str, object]]:
    parts = [uris[at : at + PART] for at in range(0, len(uris), PART)]
    return [row for table in workers.tables(parts) for row in table.to_pylist()]


def test_photos_that_kill_are_errors_and_a_killed_process_is_replaced(tmp_path: Path) -> None:
    uris = [f"photo {i}" for i in range(80)]
    uris[5], uris[41] = "a kills", "b kills-once"
    workers = Workers(partial(Lengths, tmp_path), 2)
    try:
        rows = rows_of(workers, uris)
        multiprocessing.active_children()[0].kill()
        again = rows_of(workers, uris[6:40])
    finally:
        workers.close()
    assert [(row["uri"], row["length"]) for row in rows] == [(uri, len(uri)) for uri in uris]
    assert [row["error"] for row in rows if row["error"]] == [
        "it ended 2 worker processes (killed by signal 9); leave it out"
    ]
    assert rows[5]["error"]
    assert [row["uri"] for row in again] == uris[6:40]
    assert not any(row["error"] for row in again)


@pytest.mark.parametrize(
    ("state", "code", "words"), [("refuse", "no-model", ""), ("die", "workers-die", "exit code 3")]
)
def test_a_model_that_cannot_be_loaded_stops_the_job(tmp_path: Path, state: str, code: str, words: str) -> None:
    (tmp_path / state).touch()
    workers = Workers(partial(Lengths, tmp_path), 2)
    try:
        with refused(code):
            rows_of(workers, ["photo"] * 80)
    finally:
        workers.close()


def test_a_silent_process_is_ended(tmp_path: Path) -> None:
    workers = Workers(partial(Lengths, tmp_path, pause=3600), 1, patience=1)
    try:
        [row] = rows_of(workers, ["photo"])
    finally:
        workers.close()
    assert row["error"] == "it ended 2 worker processes (no answer within 1 s); leave it out"
