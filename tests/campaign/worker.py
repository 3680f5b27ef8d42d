"""One kind of file, many cases, in one process: what became of each is printed as a line of JSON.

``python -m campaign.worker KIND SEED FIRST LAST FOLDER`` runs the cases FIRST to LAST - 1; case i depends on SEED and i
alone.  Commands run in this process, a hundred times faster than in one each; an alarm limits the time of the
processor, so that a busy machine makes nothing wrong, and memory is looked at after each case.  The process that reads
the lines knows which case it was when this one dies.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

SECONDS, BYTES = 20.0, 2 << 30  # of the processor; of memory
PATIENCE = 300.0  # seconds by the clock, for what waits for something that never comes


class TooSlow(BaseException):
    """Not an Exception: nobody may take it for a damaged file."""


def main(kind: str, seed: int, first: int, last: int, home: Path) -> None:
    warnings.simplefilter("ignore")
    os.environ["GLOCAL_CACHE"] = str(home / "cache")
    import torch

    torch.set_num_threads(1)
    from typer.testing import CliRunner

    from campaign.kinds import KINDS, MARKER
    from campaign.serving_kinds import SERVED
    from glocal.cli.main import app

    served = kind in SERVED
    (home / "seed").mkdir(parents=True, exist_ok=True)
    make = (SERVED if served else KINDS)[kind](home / "seed")
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, _too_slow)
    before = outside(home)
    for i in range(first, last):
        folder = home / "case"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        rng, started = random.Random(f"{kind} {seed} {i}"), time.process_time()
        print(json.dumps({"case": i}), flush=True)  # should this process die, it was this one
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        command: list[str] = []
        try:
            if served:
                outcome = make(rng, folder)
            else:
                command = make(rng, folder)
                result = CliRunner().invoke(app, command)
                outcome = judged(result.exit_code, result.exception, result.stdout)
        except TooSlow:
            outcome = f"wrong: more than {SECONDS:g} s"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        if list(folder.rglob(MARKER)):
            outcome = "wrong: it ran what a file told it to"
        if outside(home) != before:
            outcome = f"wrong: it wrote outside of its folder: {outside(home) ^ before}"
            before = outside(home)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        if peak > BYTES:
            outcome = f"wrong: {peak / 2**30:.1f} GiB"
        done = {"case": i, "outcome": outcome, "seconds": round(time.process_time() - started, 3), "peak": peak}
        print(json.dumps(done | ({"command": command} if outcome.startswith("wrong") else {})), flush=True)


def judged(code: int, error: BaseException | None, said: str) -> str:
    from glocal.common.errors import GlocalError

    if isinstance(error, GlocalError):
        return f"refused: {error.code}"
    if isinstance(error, OSError):
        return "refused: system"  # one line with the name of the file
    if isinstance(error, SystemExit) and code in (1, 2):
        return "refused: exit"
    if error is not None and not isinstance(error, SystemExit):
        if isinstance(error, TooSlow):
            return f"wrong: more than {SECONDS:g} s"
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"wrong: {type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {str(error)[:200]}"
    return "read" if finite_text(said) else "wrong: a number that is not finite"


def finite_text(said: str) -> bool:
    try:
        found = json.loads(said, parse_constant=lambda name: math.nan)
    except ValueError:
        return "nan" not in said.split()
    return finite(found)


def finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    if isinstance(value, list):
        return all(map(finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def outside(home: Path) -> frozenset[str]:
    """Beside the folder of the case nothing may appear."""
    own = {home / "case", home / "cache", home / "seed"}
    return frozenset(path.name for path in [*home.iterdir(), *home.parent.iterdir()] if path not in own)


def _too_slow(*_: object) -> None:
    raise TooSlow


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
