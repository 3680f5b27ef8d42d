"""benchmarks/stability.py in small: every seed with every number of threads, and a page that says how far rows move."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

from glocal.research.reproduce import scales
from tiny_reproduction import make_data, tiny_scale

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "stability.py"


def test_the_page_holds_every_row_by_every_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOCAL_DATA", str(make_data(tmp_path / "data")))
    monkeypatch.setitem(scales.SCALES, "embedded", tiny_scale())
    words = ["--out", str(tmp_path / "out"), "--seeds", "2", "--threads", "1", "2", "--page", str(tmp_path / "page.md")]
    monkeypatch.setattr(sys, "argv", ["stability.py", *words, "--rows", "Baseline", "+ Combine"])
    asked: list[int] = []  # and not done: two threads wait for each other on a busy machine
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    runpy.run_path(str(SCRIPT), run_name="__main__")
    # Backbone and two heads of both shots by each number, then all of them from the second seed.
    assert asked == [*[1, 7] * 5, *[2, 7] * 5] * 2
    page = (tmp_path / "page.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if re.match(r"\| \d", line)]
    assert [row[:2] for row in rows] == [["1", "Baseline"], ["1", "+ Combine"], ["5", "Baseline"], ["5", "+ Combine"]]
    assert all(re.fullmatch(r"\d+\.\d\d ± \d+\.\d\d", cell) for row in rows for cell in row[2:4])
    assert all(re.fullmatch(r"\d+\.\d\d, at most \d+\.\d\d", row[4]) for row in rows)
    assert rows[0][5:] == ["", ""], "the reference has no difference to itself"
    assert all(re.fullmatch(r"[+−]\d.* \[[+−]\d.*, [+−]\d.*\]", cell) for cell in rows[1][5:])
    assert '--seeds 2 --threads 1 2 --rows "Baseline" "+ Combine"' in page
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"threads-1", "threads-2", "stability.md"}
