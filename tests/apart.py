"""Processes apart: real ones that hold nothing of this one, and start in a moment.

What is slow to import is imported once, by the server that forks them (optimizers load torch._dynamo).  There is one
server for all tests of a process, and what it imports is settled by who asks last: so they all ask here.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerProcess
from multiprocessing.process import BaseProcess
from pathlib import Path

SLOW = ("glocal.cli.main", "glocal.research.engine.train", "glocal.research.data.prepare", "glocal.serve.workspace")
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([*SLOW, "torch._dynamo", "sklearn.datasets"])


def kill_after(process: BaseProcess, count: Callable[[], float], until: float, *, within: float) -> bool:
    """Kill it when it has got so far, and a moment more, of at most so many seconds; False when it ended before."""
    while process.is_alive() and count() < until:
        time.sleep(0.0005)
    time.sleep(random.uniform(0, within))
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def start(*words: object, out: Path, err: Path, **environment: str) -> ForkServerProcess:
    """``glocal WORDS`` in a new process; what it says goes to those files."""
    process = PROCESSES.Process(target=glocal, args=(list(map(str, words)), str(out), str(err)), kwargs=environment)
    process.start()
    return process


def glocal(words: Sequence[str], out: str, err: str, **environment: str) -> None:
    """In such a process."""
    import torch

    from glocal.cli.main import main

    for number, path in ((1, out), (2, err)):
        with open(path, "ab") as file:
            os.dup2(file.fileno(), number)
    os.environ |= environment
    torch.set_num_threads(1)
    sys.argv = ["glocal", *words]
    main()
