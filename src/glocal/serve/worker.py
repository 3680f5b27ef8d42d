"""One thread that answers: it takes what has arrived, up to a batch of pictures, through the model at once.

Under load batches fill by themselves, and a lone picture waits for nobody.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice

from glocal.serve.problems import busy
from glocal.serve.snapshot import Result, Snapshot
from glocal_runtime.encoder import BATCH
from glocal_runtime.photos import Source

LONGEST_WAIT = 60  # seconds that a client is told to wait at most


@dataclass(frozen=True)
class _Job:
    """The pictures of one request, all answered by one version of the recognizer."""

    snapshot: Snapshot
    sources: Sequence[Source]
    future: Future[list[Result]] = field(default_factory=Future)


class Worker:
    def __init__(self, *, queue: int, on_batch: Callable[[int], None]) -> None:
        self._most, self._on_batch = queue, on_batch  # which is told the number of pictures
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._speed = 0.0  # pictures per second, of late
        self.pending = 0  # pictures accepted and not yet answered
        self._thread = threading.Thread(target=self._run, name="glocal-answer", daemon=True)
        self._thread.start()

    async def predict(self, snapshot: Snapshot, sources: Sequence[Source], seconds: float) -> list[Result]:
        """Answers in the order of the pictures; a request that takes too long is not computed any more."""
        waiting = self.submit(snapshot, sources)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(waiting)
        except TimeoutError:
            raise busy("the pictures were not answered in time", self._retry_after()) from None

    def submit(self, snapshot: Snapshot, sources: Sequence[Source]) -> Future[list[Result]]:
        """All of them or none; busy when there is no room.  A future that is cancelled in time costs nothing."""
        job = _Job(snapshot, sources)
        with self._changed:
            if self._closed or self.pending + len(sources) > self._most:
                raise busy("too many pictures at once", self._retry_after())
            self.pending += len(sources)
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def close(self) -> None:
        """Finish what was accepted, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while jobs := self._arrived():
            wanted = [job for job in jobs if job.future.set_running_or_notify_cancel()]
            started, n = time.perf_counter(), sum(len(job.sources) for job in wanted)
            outcomes = self._outcomes(wanted)
            if wanted:
                speed = n / (time.perf_counter() - started)
                self._speed = 0.8 * (self._speed or speed) + 0.2 * speed
                self._on_batch(n)
            with self._changed:
                self.pending -= sum(len(job.sources) for job in jobs)
            for job, outcome in zip(wanted, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    job.future.set_exception(outcome)
                else:
                    job.future.set_result(outcome)

    def _arrived(self) -> list[_Job]:
        """The oldest request, and those after it that fit into its batch; none when closed and all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            jobs: list[_Job] = []
            room = BATCH
            while self._jobs and (not jobs or self._jobs[0].snapshot is jobs[0].snapshot):
                if jobs and len(self._jobs[0].sources) > room:
                    break
                jobs.append(self._jobs.popleft())
                room -= len(jobs[-1].sources)
            return jobs

    def _outcomes(self, jobs: list[_Job]) -> list[list[Result] | Exception]:
        """Of each request its answers; bad pictures are among them, a mistake of ours must stop nobody else."""
        if not jobs:
            return []
        try:
            results = iter(jobs[0].snapshot.predict([source for job in jobs for source in job.sources]))
            return [list(islice(results, len(job.sources))) for job in jobs]
        except Exception as error:
            return [error] if len(jobs) == 1 else [self._outcomes([job])[0] for job in jobs]

    def _retry_after(self) -> int:
        """Seconds until there is room again, as far as one can tell."""
        return min(LONGEST_WAIT, max(1, math.ceil(self.pending / self._speed))) if self._speed else 1
