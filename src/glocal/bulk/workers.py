"""Worker processes of this machine: a process that dies costs its own task a try, and nothing else.

A decoder can crash, memory can run out, somebody can kill a process.  Its task is done again; a task that ends a second
process is divided, and a photo that ends one by itself becomes an error in the results.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
from pebble import ProcessExpired, ProcessPool

from glocal.bulk import worker
from glocal.bulk.job import Job, JobFolder
from glocal.bulk.rows import Rows, rows_of
from glocal.common.errors import DataError, GlocalError
from glocal.recognizer.encoder import BATCH

STRETCH = 4 * BATCH  # photos of a task: while one batch is computed, the next ones are read
TRIES = 2
PATIENCE = 900.0  # seconds that a task may take
DEATHS = 20  # from which on there must be more finished tasks than deaths

Done = Callable[[int], None]  # called with the number of photos that were answered since


@dataclass(frozen=True)
class Task:
    """A stretch of one part, from row ``at`` on."""

    part: int
    at: int
    uris: tuple[str, ...]
    tries: int = 0  # processes that ended with it
    error: str = ""  # of a photo that ended too many


class Workers:
    """``load`` makes in each process what computes the rows."""

    def __init__(self, load: Callable[[], Rows], size: int, *, patience: float = PATIENCE) -> None:
        self._load, self._size, self._patience = load, size, patience
        self._deaths = self._finished = 0
        self._pool: Any = self._start()

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, pa.Table]]:
        """Every task once, or its pieces, in the order in which they are done; tasks are taken as they are needed."""
        fresh, again = iter(tasks), list[Task]()
        running: dict[Any, Task] = {}
        while True:
            while len(running) < 2 * self._size and (task := again.pop() if again else next(fresh, None)):
                running[self._schedule(task)] = task
            if not running:
                return
            done, _ = wait(running, timeout=2 * self._patience, return_when=FIRST_COMPLETED)
            if not done:  # the pool itself hangs: a process died at a bad moment
                self.close()
                again += running.values()
                running.clear()
            for future in done:
                task, failure = running.pop(future), future.exception()
                if failure is None:
                    self._finished += 1
                    yield task, future.result()
                elif isinstance(failure, GlocalError):
                    raise failure  # no other process could do better
                else:
                    again += self._after_death(task, failure)

    def close(self) -> None:
        self._pool.stop()
        self._pool.join()

    def _start(self) -> ProcessPool:
        # A fork of a process with threads may hang.
        return ProcessPool(self._size, initializer=worker.begin, context=get_context("spawn"))

    def _schedule(self, task: Task) -> Any:
        if not self._pool.active:
            self.close()
            self._pool = self._start()
        return self._pool.schedule(worker.run, (self._load, task.uris, task.error), timeout=self._patience)

    def _after_death(self, task: Task, failure: BaseException) -> list[Task]:
        reason = _reason(failure, self._patience)
        self._deaths += 1
        if self._deaths >= max(DEATHS, self._finished):
            raise DataError(
                f"the worker processes keep ending ({reason}); if memory ran out, use fewer --workers; "
                "what is finished stays, continue with --resume",
                code="workers-die",
            )
        if isinstance(failure, BrokenProcessPool):
            return [task]  # it had not begun
        if task.tries + 1 < TRIES:
            return [replace(task, tries=task.tries + 1)]
        if len(task.uris) == 1:
            return [replace(task, error=f"it ended {TRIES} worker processes ({reason}); leave it out")]
        step = BATCH if len(task.uris) > BATCH else 1
        return [
            replace(task, at=task.at + start, uris=task.uris[start : start + step])
            for start in range(0, len(task.uris), step)
        ]


def work(folder: JobFolder, job: Job, *, workers: int | None = None, done: Done = lambda n: None) -> None:
    """Make the parts that are missing, on this machine."""
    waiting = folder.waiting()
    if waiting:
        with workers_of(job, workers or (1 if job.device != "cpu" and gpus() else available_cores())) as pool:
            make_parts(pool, folder, waiting, done)


@contextmanager
def workers_of(job: Job, size: int, *, home: str | None = None) -> Iterator[Workers]:
    """``home`` as in ``source_of``."""
    pool = Workers(partial(rows_of, job, home), size)
    try:
        yield pool
    finally:
        pool.close()


def make_parts(workers: Workers, folder: JobFolder, parts: Iterable[int], done: Done = lambda n: None) -> None:
    """Each part is written when its last row has come; one or two are in memory at a time."""
    sizes: dict[int, int] = {}
    pieces: dict[int, dict[int, pa.Table]] = {}

    def tasks() -> Iterator[Task]:
        for part, uris in folder.photos(parts):
            sizes[part], pieces[part] = len(uris), {}
            for at in range(0, len(uris), STRETCH):
                yield Task(part, at, tuple(uris[at : at + STRETCH]))

    for task, rows in workers.run(tasks()):
        pieces[task.part][task.at] = rows
        if sum(map(len, pieces[task.part].values())) == sizes[task.part]:
            ordered = sorted(pieces.pop(task.part).items())
            folder.write(task.part, pa.concat_tables([table for _, table in ordered]).combine_chunks())
        done(len(rows))


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpus() -> int:
    """By the driver's folder: a process per core would be too many for one."""
    folder = Path("/proc/driver/nvidia/gpus")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def _reason(failure: BaseException, patience: float) -> str:
    if isinstance(failure, TimeoutError):
        return f"no answer within {patience:g} s"
    if isinstance(failure, ProcessExpired) and failure.exitcode is not None:
        code = failure.exitcode
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{type(failure).__name__}: {failure}".partition("\n")[0]
