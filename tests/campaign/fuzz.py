"""The processes that run the cases of one kind, and the count of what became of them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer

from campaign.worker import PATIENCE

WORKER = (sys.executable, "-m", "campaign.worker")
SILENCE = PATIENCE + 60  # seconds without a word: an alarm of its own cannot end a worker that is busy inside C
TESTS = Path(__file__).parents[1]
MOST_BYTES = 12 << 30  # of address space: torch alone maps several


@dataclass
class Count:
    """Of one kind: outcomes by their first word, and every case that went wrong."""

    kind: str
    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0  # of the slowest
    peak: int = 0  # bytes

    @property
    def tried(self) -> int:
        return self.outcomes.total()

    def add(self, case: int, outcome: str) -> None:
        self.outcomes[outcome.partition(":")[0]] += 1
        if outcome.startswith("wrong"):
            self.wrong[case] = outcome

    def to_json(self) -> dict[str, object]:
        return vars(self) | {"outcomes": dict(self.outcomes), "tried": self.tried}


def run(kind: str, cases: int, seed: int, home: Path) -> Count:
    """All cases, in as few processes as possible: one that dies is a wrong case, and the next goes on after it."""
    count, first = Count(kind, seed), 0
    while first < cases:
        home.mkdir(parents=True, exist_ok=True)
        start, command = first, [*WORKER, kind, str(seed), str(first), str(cases), str(home)]
        path = os.pathsep.join([str(TESTS), *sys.path])
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES)),
        ) as process:
            assert process.stdout is not None
            begun, watch = -1, _killing(process)
            for line in process.stdout:
                watch.cancel()
                watch = _killing(process)
                said = json.loads(line)
                if "outcome" in said:
                    count.add(said["case"], said["outcome"])
                    count.seconds, count.peak = max(count.seconds, said["seconds"]), max(count.peak, said["peak"])
                begun, first = (said["case"], said["case"] + 1) if "outcome" not in said else (-1, first)
            watch.cancel()
        if process.returncode:
            assert first > start, f"the worker of {kind} did not start"
            if begun >= 0:
                count.add(begun, f"wrong: the process ended with {process.returncode}")
    return count


def _killing(process: subprocess.Popen[str]) -> Timer:
    watch = Timer(SILENCE, process.kill)
    watch.daemon = True
    watch.start()
    return watch


if __name__ == "__main__":  # python -m campaign.fuzz KIND CASES SEED FOLDER
    found = run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    print(json.dumps(found.to_json(), indent=1))
