"""The graph of a reproduction on Ray: a task per step, which waits for those it needs.

All machines must see the folder of the reproduction and the data.  A task whose machine died is given to another one
and continues the run from its last checkpoint; its lock went with the process that held it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from glocal.bulk.ray_cluster import cluster
from glocal.common.errors import GlocalError
from glocal.research.reproduce.graph import Step
from glocal.research.reproduce.runs import Settings
from glocal.research.same_sums import ORDER, sums_alike

RETRIES = 5  # of a step whose process or machine died


def work_off(steps: Sequence[Step], how: Settings, *, address: str | None = None, workers: int | None = None) -> None:
    """``steps`` none before what it needs."""
    quiet = replace(how, out=how.out.resolve(), callback=Settings.callback, progress=None)  # bars stay here
    with cluster(address, workers) as ray:
        gpu = 1 if how.device is not None and how.device.type == "cuda" else 0
        told = {"env_vars": dict(ORDER)} if sums_alike() else None  # other machines do not have what was set here
        task = ray.remote(num_cpus=1, num_gpus=gpu, max_retries=RETRIES, runtime_env=told)(_do)
        begun: dict[Step, Any] = {}
        for step in steps:
            begun[step] = task.remote(step, quiet, *(begun[before] for before in step.needs()))
        try:
            ray.get(list(begun.values()))
        except ray.exceptions.RayTaskError as failed:
            if isinstance(failed.cause, GlocalError):
                raise failed.cause from None
            raise


def _do(step: Step, how: Settings, *before: None) -> None:
    """``before``: what Ray waits for."""
    if how.device is not None and how.device.type == "cuda":
        how = replace(how, device=torch.device("cuda"))  # Ray shows each task its own
    step.do(how)
