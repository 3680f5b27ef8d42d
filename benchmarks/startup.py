"""CPU seconds of commands that compute nothing.

    python benchmarks/startup.py

Goal: at most 0.5 s each.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys

GOAL, TRIES = 0.5, 3
COMMANDS = (
    "--help", "enroll --help", "predict --help", "serve --help", "reproduce --help", "train --help",
    "list encoders", "list heads", "list models", "cache",
    "classes missing.glocal", "inspect missing.glocal", "predict missing.glocal a.jpg", "check missing.glocal photos",
    "enroll missing -o new.glocal", "evaluate missing --dataset embedded", "compare missing --dataset embedded",
    "train missing -o new", "convert missing -o new.glocal",
    "predict --no-such-option", "no-such-command",
)  # fmt: skip


def seconds(command: str) -> float:
    """CPU of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "glocal", *command.split()], capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    print(f"load {os.getloadavg()[0]:.1f}")
    for command in COMMANDS:
        used = min(seconds(command) for _ in range(TRIES))
        print(f"{used:5.2f} s of CPU  {'' if used <= GOAL else 'OVER ':5}glocal {command}", flush=True)


if __name__ == "__main__":
    main()
