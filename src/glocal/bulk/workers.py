"""Worker processes of this machine: a process that dies costs its own part a try, and nothing else.

A decoder can crash, memory can run out, somebody can kill a process.  Another process does its part again.  A part that
ends a second process is divided, and a photo that ends two processes by itself becomes an error in the results.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
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
from glocal.recognizer.batches import BATCH

TRIES = 2
PATIENCE = 900.0  # seconds that a part may take
DEATHS = 20  # so many are allowed before any task is finished

Done = Callable[[int], None]  # called with the number of photos that were answered since


class Workers:
    """``load`` makes in each process what computes the rows."""

    def __init__(self, load: Callable[[], Rows], size: int, *, patience: float = PATIENCE) -> None:
        self._load, self._size, self._patience = load, size, patience
        self._deaths = self._finished = 0
        self._ahead: deque[tuple[Sequence[str], Any]] = deque()  # with their futures
        self._pool: Any = self._start()

    def tables(self, parts: Iterable[Sequence[str]]) -> Iterator[pa.Table]:
        """The rows of each part, in order; a few parts are taken ahead."""
        for uris in parts:
            self._ahead.append((uris, self._scheduled(uris)))
            if len(self._ahead) > 2 * self._size:
                yield self._rows(*self._ahead.popleft())
        while self._ahead:
            yield self._rows(*self._ahead.popleft())

    def close(self) -> None:
        self._pool.stop()
        self._pool.join()

    def _rows(self, uris: Sequence[str], future: Any = None, error: str = "") -> pa.Table:
        reason = ""
        for _ in range(TRIES):
            future = future or self._scheduled(uris, error)
            try:
                rows = future.result(2 * self._patience)
                self._finished += 1
                return rows
            except GlocalError:
                raise  # no other process could do better
            except Exception as failure:
                if not future.done():
                    self._drop_pool()
                reason, future = self._after_death(failure), None
        if len(uris) == 1:
            return self._rows(uris, error=f"it ended {TRIES} worker processes ({reason}); leave it out")
        step = BATCH if len(uris) > BATCH else 1
        return pa.concat_tables([self._rows(uris[at : at + step]) for at in range(0, len(uris), step)])

    def _scheduled(self, uris: Sequence[str], error: str = "") -> Any:
        if not self._pool.active:
            self.close()
            self._pool = self._start()
        return self._pool.schedule(worker.run, (self._load, uris, error), timeout=self._patience)

    def _start(self) -> ProcessPool:
        # A fork of a process with threads may hang.
        return ProcessPool(self._size, initializer=worker.begin, context=get_context("spawn"))

    def _drop_pool(self) -> None:
        """A process that was killed in the middle of a message keeps the others from theirs."""
        self.close()
        for _, future in self._ahead:
            future.cancel()

    def _after_death(self, failure: Exception) -> str:
        """Why the process ended, in a few words."""
        reason = f"{type(failure).__name__}: {failure}".partition("\n")[0]
        if isinstance(failure, TimeoutError):
            reason = f"no answer within {self._patience:g} s"
        elif isinstance(failure, ProcessExpired):
            code = failure.exitcode or 0
            reason = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        self._deaths += not isinstance(failure, CancelledError)
        if self._deaths >= max(DEATHS, self._finished, 4 * self._size):  # a pool that breaks fails what is ahead
            raise DataError(
                f"the worker processes keep ending ({reason}); if memory ran out, use fewer --workers; "
                "what is finished stays, continue with --resume",
                code="workers-die",
            )
        return reason


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


def make_parts(workers: Workers, folder: JobFolder, parts: Sequence[int], done: Done = lambda n: None) -> None:
    for part, rows in zip(parts, workers.tables(uris for _, uris in folder.photos(parts)), strict=True):
        folder.write(part, rows.combine_chunks())
        done(len(rows))


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpus() -> int:
    """By the driver's folder: a process per core would be too many for one."""
    folder = Path("/proc/driver/nvidia/gpus")
    return len(list(folder.iterdir())) if folder.is_dir() else 0
