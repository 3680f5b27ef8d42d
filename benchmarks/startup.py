"""What a command costs before it begins: a path that is wrong, and the memory that a network returns and fetches again.

    python benchmarks/startup.py [--photos 150] [--turns 2]

Goals: `glocal predict` of a path that leads nowhere takes under 0.5 s of CPU.  The same photos are predicted with the
allocator left alone (MALLOC_ARENA_TEST is the user's word, which glocal respects) and as it is, in turns.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recognizer import groups, photos


def used(words: list[str], **environment: str) -> tuple[float, float, float]:
    """Wall, user and system seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "glocal", *words], env=os.environ | environment, capture_output=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=int, default=150)
    parser.add_argument("--turns", type=int, default=2)
    asked = parser.parse_args()
    data = Path(os.environ["GLOCAL_DATA"]) / "caltech-photos" if "GLOCAL_DATA" in os.environ else None
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        paths = photos(data, home, asked.photos + 50)
        for i, some in enumerate(groups(paths[:50])):
            (home / "few" / f"{i}").mkdir(parents=True)
            for path in some:
                (home / "few" / f"{i}" / path.name).symlink_to(path)
        file = str(home / "ten.glocal")
        used(["enroll", str(home / "few"), "-o", file, "--device", "cpu"])
        wrong = min(sum(used(["predict", file, str(home / "gone")])[1:]) for _ in range(3))
        print(f"load {os.getloadavg()[0]:.1f}; a wrong path: {wrong:.2f} s of CPU (goal < 0.5)")
        query = [str(path) for path in paths[50:]]
        before, after = [], []
        for turn in range(asked.turns):
            out = [str(home / f"{turn}-{name}.csv") for name in ("before", "after")]
            before.append(used(["predict", file, *query, "--csv", out[0], "--device", "cpu"], MALLOC_ARENA_TEST="8"))
            after.append(used(["predict", file, *query, "--csv", out[1], "--device", "cpu"]))
            assert Path(out[0]).read_bytes() == Path(out[1]).read_bytes(), "equal answers"
        for name, found in (("allocator left alone", before), ("freed memory is kept", after)):
            wall, user, system = (min(each) for each in zip(*found, strict=True))
            print(f"{name}: {wall:6.1f} s, CPU {user:.1f} user + {system:.1f} system, {len(query)} photos")
        cpu = [min(user + system for _, user, system in found) for found in (before, after)]
        print(f"{cpu[1] / cpu[0]:.2f} times the CPU, equal answers", flush=True)


if __name__ == "__main__":
    main()
