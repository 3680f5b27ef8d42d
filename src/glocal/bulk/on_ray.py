"""The engine of many machines: Ray hands parts to actors, and each actor makes them as one machine would.

An actor has a crew of one process, so a photo that kills ends that process and not the actor; the death of an actor, or
of its machine, is Ray's to mend: the part is given to another.  Parts, not pictures, travel through Ray, and an actor
writes what it has made, so photos and results must lie where every machine can reach them.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from typing import Any

from glocal.bulk.job import Job, JobFolder
from glocal.bulk.local import Done, crew, make_parts
from glocal.bulk.ray_cluster import cluster
from glocal.bulk.store import Store

CORES = 1  # of an actor


class PartMaker:
    """An actor of Ray: numbers of parts in, numbers of photos out."""

    def __init__(self, where: str, job: Job, home: str) -> None:
        self._folder, self._stack = JobFolder(Store(where)), ExitStack()
        self._crew = self._stack.enter_context(crew(job, 1, cores=CORES, home=home))

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        parts = [int(part) for part in batch["id"]]
        make_parts(self._crew, self._folder, parts)
        return {"photos": [self._folder.size([part]) for part in parts]}


def work(
    folder: JobFolder,
    job: Job,
    *,
    workers: int | None = None,
    done: Done = lambda n: None,
    address: str | None = None,
) -> None:
    """Make the parts that are missing, on as many actors as there are workers, GPUs or cores."""
    waiting = folder.waiting()
    if not waiting:
        return
    with cluster(address, workers) as ray:
        from ray.data import ActorPoolStrategy, DataContext, from_items

        logging.getLogger("ray.data").setLevel(logging.ERROR)
        DataContext.get_current().enable_progress_bars = False
        has = ray.cluster_resources()
        gpus = 0 if job.device == "cpu" else int(has.get("GPU", 0))
        size = min(workers or gpus or max(1, int(has.get("CPU", 1))), len(waiting))
        parts = from_items([{"id": part} for part in waiting], override_num_blocks=len(waiting))
        made = parts.map_batches(
            PartMaker,
            batch_size=1,
            compute=ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=2),
            fn_constructor_args=(folder.store.where, job, os.getcwd()),
            num_cpus=CORES,
            num_gpus=1 if gpus else None,
        )
        for row in made.iter_rows():
            done(int(row["photos"]))
