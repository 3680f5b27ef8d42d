"""Ray: it hands parts to actors on many machines, and each actor makes them as one machine would.

An actor has one worker process, so a photo that kills ends that process and not the actor.  Ray gives the part of an
actor or machine that died to another.  An actor writes the parts it makes; photos and results must lie where every
machine can reach them.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from glocal.bulk.job import Job, JobFolder
from glocal.bulk.store import Store
from glocal.bulk.workers import Done, make_parts, workers_of
from glocal.common.errors import RecipeError

# Ray sends no statistics, warns of nothing, and has the priority of other programs (its workers are nice by 15).
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_worker_niceness": "0"}


class PartMaker:
    """An actor of Ray: numbers of parts in, numbers of photos out."""

    def __init__(self, where: str, job: Job, home: str) -> None:
        self._folder, self._stack = JobFolder(Store(where)), ExitStack()
        self._workers = self._stack.enter_context(workers_of(job, 1, home=home))

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        parts = [int(part) for part in batch["id"]]
        make_parts(self._workers, self._folder, parts)
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
            num_cpus=1,
            num_gpus=1 if gpus else None,
        )
        for row in made.iter_rows():
            done(int(row["photos"]))


def check_ray() -> None:
    try:
        import ray.data  # noqa: F401
    except ImportError as error:
        raise RecipeError(f"--engine ray needs {error.name}: pip install 'glocal[ray]'", code="needs-ray") from error


@contextmanager
def cluster(address: str | None, workers: int | None = None) -> Iterator[Any]:
    """The module ``ray``, connected to the cluster at an address, or to one of ``workers`` cores that ends here."""
    os.environ.update({name: value for name, value in SETTINGS.items() if name not in os.environ})
    import ray

    if ray.is_initialized():
        yield ray
        return
    alone: dict[str, Any] = {}
    if address is None:
        alone = {"num_cpus": workers, "include_dashboard": False}
        if "RAY_AUTH_TOKEN_PATH" not in os.environ:  # else Ray would leave a token in the user's home
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **alone)
    except Exception as error:  # Ray has no class for it; on a busy machine its parts wait 30 s for each other
        reason = str(error).partition(". ")[0] or type(error).__name__
        raise RecipeError(
            f"Ray at {address or 'this machine'} did not start ({reason}); try again", code="no-ray"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()
