"""A reproduction killed five times at random moments ends with the numbers of one that nobody disturbed."""

from __future__ import annotations

import json
import random
import signal
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from tiny_reproduction import make_data, start
from tiny_runs import PATIENCE

pytestmark = pytest.mark.long
KILLS = 5
ASKED = ["ablation", "combine", "coefficients", "figure-topk", "figure-density", "figure-pixels"]


def test_five_kills_change_no_number(tmp_path: Path) -> None:
    home = make_data(tmp_path / "data")
    chance = random.Random()

    def begin(out: Path) -> ForkServerProcess:
        words = [*ASKED, "--out", str(out), "--device", "cpu"]
        return start(home, *words, output=out.with_suffix(".log"), cache=out.with_suffix(".cache"))

    began = time.monotonic()
    whole = begin(tmp_path / "whole")
    whole.join(10 * PATIENCE)
    assert whole.exitcode == 0, (tmp_path / "whole.log").read_text()
    length = time.monotonic() - began
    killed, reached = tmp_path / "killed", []
    for _ in range(KILLS):
        process = begin(killed)
        process.join(chance.uniform(0.1, 0.35) * length)
        process.kill()
        process.join(PATIENCE)
        assert process.exitcode in (-signal.SIGKILL, 0)
        reached.append(len(list((killed / "runs").glob("*/done.json"))))
    last = begin(killed)
    last.join(10 * PATIENCE)
    assert last.exitcode == 0, (tmp_path / "killed.log").read_text()
    assert reached[0] < reached[-1], f"the kills came too early to interrupt anything: {reached}"
    first, again = (json.loads((tmp_path / name / "report.json").read_text()) for name in ("whole", "killed"))
    assert again["pieces"] == first["pieces"], f"numbers differ after kills at {reached} finished runs"
    assert again["found"] == first["found"]
    assert {name: run["validation"] for name, run in again["runs"].items()} == {
        name: run["validation"] for name, run in first["runs"].items()
    }
