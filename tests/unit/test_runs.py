"""The log of a run after a kill."""

from __future__ import annotations

import json
from pathlib import Path

from glocal.engine.run_folder import METRICS, Log


def test_lines_of_steps_to_come_are_dropped_and_half_a_line_too(tmp_path: Path) -> None:
    path = tmp_path / METRICS
    path.write_text('{"step": 1, "a": 1}\n{"step": 2, "a": 2}\n{"step": 3, "a": 3}\n{"step": 3, "val')
    log = Log(path, keep_until=2)
    log.write({"step": 3, "a": 4})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "a": 1},
        {"step": 2, "a": 2},
        {"step": 3, "a": 4},
    ]


def test_a_new_run_begins_an_empty_log(tmp_path: Path) -> None:
    path = tmp_path / METRICS
    path.write_text('{"step": 1}\n')
    Log(path, keep_until=0)
    assert path.read_text() == ""
