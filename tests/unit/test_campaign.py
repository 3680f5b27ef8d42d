"""The campaign itself: a case that cannot be ended from within is ended from outside, and the next ones are tried."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from campaign import fuzz

WORKER = """
import json, signal, sys, time
first, last = int(sys.argv[3]), int(sys.argv[4])
for i in range(first, last):
    print(json.dumps({"case": i}), flush=True)
    if i == 1:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGPROF, signal.SIGTERM})
        time.sleep(15)
        sys.exit(3)
    print(json.dumps({"case": i, "outcome": "read", "seconds": 0, "peak": 0}), flush=True)
"""


def test_a_worker_that_hangs_is_killed_and_the_next_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    monkeypatch.setattr(fuzz, "WORKER", (sys.executable, str(tmp_path / "worker.py")), raising=False)
    monkeypatch.setattr(fuzz, "SILENCE", 2.0, raising=False)
    count = fuzz.run("any", 3, 1, tmp_path / "home")
    assert count.wrong == {1: "wrong: the process ended with -9"}
    assert count.outcomes == {"read": 2, "wrong": 1}


def test_a_worker_that_does_not_start_again_ends_the_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It died in the second case, and then at once: trying for ever would help nobody."""
    script = WORKER.replace("for i in", "if first:\n    sys.exit(3)\nfor i in")
    (tmp_path / "worker.py").write_text(script.replace("time.sleep(15)", ""))
    monkeypatch.setattr(fuzz, "WORKER", (sys.executable, str(tmp_path / "worker.py")), raising=False)
    with pytest.raises(AssertionError, match="the worker of any did not start"):
        fuzz.run("any", 3, 1, tmp_path / "home")
