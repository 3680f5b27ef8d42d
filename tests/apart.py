"""Processes apart: real ones that hold nothing of this one, and start in a moment.

What is slow to import is imported once, by the server that forks them (optimizers load torch._dynamo).  There is one
server for all tests of a process, and what it imports is settled by who asks last: so they all ask here.
"""

from __future__ import annotations

import multiprocessing

SLOW = ("glocal.cli.main", "glocal.engine.train", "glocal.data.prepare", "glocal.serve.workspace")
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([*SLOW, "glocal.recognizer.torch_model", "torch._dynamo", "sklearn.datasets"])
