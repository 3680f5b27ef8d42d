"""The engine of one machine: parts in order, their batches shared among processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa

from glocal.bulk.crew import Crew, Task
from glocal.bulk.job import Job, JobFolder
from glocal.bulk.look import AnswerLook, Look, VectorLook
from glocal.common.errors import DataError
from glocal.recognizer.encoder import BATCH

Done = Callable[[int], None]  # called with the number of photos that were looked at since
LOOKS: dict[str, Callable[..., Look]] = {"answers": AnswerLook, "vectors": VectorLook}


def work(folder: JobFolder, job: Job, *, workers: int | None = None, done: Done = lambda n: None) -> None:
    """Make the parts that are missing."""
    waiting = folder.waiting()
    if waiting:
        with crew(job, workers) as members:
            make_parts(members, folder, waiting, done)


@contextmanager
def crew(job: Job, workers: int | None, *, cores: int | None = None, home: str | None = None) -> Iterator[Crew]:
    """``cores`` that may be used, if not all; ``home`` as in ``source_of``."""
    cores = cores or available_cores()
    size = workers or (1 if job.device != "cpu" and gpus() else cores)
    threads = max(1, cores // size)
    with Crew(partial(look_of, job, threads=threads, home=home), size, threads=threads) as members:
        yield members


def look_of(job: Job, *, threads: int, home: str | None) -> Look:
    """In each process, also one that starts hours later: what has the name of the model by then may be another."""
    look = LOOKS[job.kind](job.model, device=job.device, threads=threads, home=home)
    if look.maker != job.maker:
        raise DataError(
            f"{job.model} is not what this job began with ({job.maker[:16]}, this is {look.maker[:16]}); put that back "
            "and continue with --resume, or delete the results to start anew",
            code="changed-meanwhile",
        )
    return look


def make_parts(members: Crew, folder: JobFolder, parts: Iterable[int], done: Done = lambda n: None) -> None:
    """Each part is written when its last row has come; one or two are in memory at a time."""
    sizes: dict[int, int] = {}
    found: dict[int, dict[int, pa.RecordBatch]] = {}

    def tasks() -> Iterator[Task]:
        for part, uris in folder.photos(parts):
            sizes[part] = len(uris)
            for at in range(0, len(uris), BATCH):
                yield Task(part, at, tuple(uris[at : at + BATCH]))

    for task, rows in members.run(tasks()):
        pieces = found.setdefault(task.part, {})
        pieces[task.at] = rows
        if sum(map(len, pieces.values())) == sizes[task.part]:
            ordered = [pieces[at] for at in sorted(pieces)]
            folder.write(task.part, pa.Table.from_batches(ordered).combine_chunks())
            del found[task.part], sizes[task.part]
        done(len(rows))


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpus() -> int:
    """Without asking torch, which takes seconds; a process per core would be too many for one."""
    folder = Path("/proc/driver/nvidia/gpus")
    return len(list(folder.iterdir())) if folder.is_dir() else 0
