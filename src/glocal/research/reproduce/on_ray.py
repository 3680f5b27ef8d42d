"""Runs on a Ray cluster: each run is one task, which starts when the run it needs is there.

All machines must see the folder of the reproduction and the data.  Ray repeats a task whose machine died; the run then
continues from its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from glocal.bulk.on_ray import cluster
from glocal.common.errors import GlocalError
from glocal.research.reproduce.runs import Run, RunSettings, ensure_run

RETRIES = 5  # of a run whose process or machine died


def make_runs(runs: Sequence[Run], settings: RunSettings, *, address: str | None, workers: int | None = None) -> None:
    """Make the runs and all that they start from."""
    # Progress bars stay in this process.
    quiet = replace(settings, out=settings.out.resolve(), callback=RunSettings.callback, progress=None)
    gpus = 1 if quiet.device is not None and quiet.device.type == "cuda" else 0
    with cluster(address, workers) as ray:
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(_make)
        started: dict[Any, Any] = {None: None}
        for step in dict.fromkeys(step for run in runs for step in run.chain()):
            needed = step.init if isinstance(step.init, Run) else None
            started[step] = task.remote(step, quiet, started[needed])
        try:
            ray.get([task for task in started.values() if task is not None])
        except ray.exceptions.RayTaskError as failed:
            if isinstance(failed.cause, GlocalError):
                raise failed.cause from None
            raise


def _make(run: Run, settings: RunSettings, needed: None) -> None:
    """``needed``: the task that Ray waits for."""
    if settings.device is not None and settings.device.type == "cuda":
        settings = replace(settings, device=torch.device("cuda"))  # Ray shows each task its own
    ensure_run(run, settings)
