"""Pictures of many requests through the backbone at once.

Requests put their pictures into a bounded queue.  A few threads decode, one thread takes what is decoded by then, up to
a batch, embeds and judges it: under load batches fill by themselves, and a lone picture waits for nobody.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby

from glocal.recognizer import Prediction, Recognizer, Unreadable
from glocal.recognizer.eye import Batch, Picture, Source, take
from glocal.recognizer.support import on_cpu
from glocal.types import Views

PATIENCE = 60  # seconds that a client is told to wait at most


@dataclass(frozen=True)
class Seen:
    """A picture, what is kept of it, and the answer."""

    picture: Picture
    views: Views  # of this one, on the CPU
    answer: Prediction


Result = Seen | Unreadable


class Full(Exception):
    def __init__(self, seconds: int) -> None:
        super().__init__(f"the queue is full for {seconds} s")
        self.seconds = seconds


@dataclass
class _Job:
    """The pictures of one request, all judged by one recognizer."""

    recognizer: Recognizer
    results: list[Result | None]
    left: int
    future: Future[list[Result]] = field(default_factory=Future)


@dataclass(frozen=True)
class _Item:
    job: _Job
    place: int
    picture: Picture | Unreadable


class Batcher:
    def __init__(self, *, queue: int, batch: int, workers: int) -> None:
        self._most, self._batch = queue, batch
        self._ready: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._pending = 0
        self._closed = False
        self._speed = 0.0  # pictures per second, of late
        self.sizes: dict[int, int] = {}  # batch size -> how often
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="glocal-decode")
        self._thread = threading.Thread(target=self._run, name="glocal-batch", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        """Pictures accepted and not yet answered."""
        return self._pending

    def retry_after(self) -> int:
        """Seconds until there is room again, as far as one can tell."""
        return min(PATIENCE, max(1, math.ceil(self._pending / self._speed))) if self._speed else 1

    def submit(self, recognizer: Recognizer, sources: Sequence[Source]) -> Future[list[Result]]:
        """All of them or none; ``Full`` when there is no room."""
        job = _Job(recognizer, [None] * len(sources), len(sources))
        job.future.set_running_or_notify_cancel()  # whoever stops waiting does not stop the others of the batch
        with self._changed:
            if self._closed or self._pending + len(sources) > self._most:
                raise Full(self.retry_after())
            self._pending += len(sources)
        for place, source in enumerate(sources):
            self._pool.submit(self._decode, job, place, source)
        return job.future

    def close(self) -> None:
        """Finish what was accepted, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._pool.shutdown()
        self._thread.join()

    def _decode(self, job: _Job, place: int, source: Source) -> None:
        try:
            picture = take(source, job.recognizer.eye.preprocess)
        except Exception as error:  # take() answers for bad pictures itself; this is a mistake, which must not hang
            self._fail([_Item(job, place, Unreadable(source.name, ""))], error)
            return
        with self._changed:
            self._ready.append(_Item(job, place, picture))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or (self._closed and not self._pending))
                items = [self._ready.popleft() for _ in range(min(self._batch, len(self._ready)))]
            if not items:
                return
            started = time.perf_counter()
            items.sort(key=lambda item: id(item.job.recognizer))  # two only while a change happens
            for _, some in groupby(items, key=lambda item: id(item.job.recognizer)):
                self._answer(list(some))
            speed = len(items) / (time.perf_counter() - started)
            self._speed = speed if not self._speed else 0.8 * self._speed + 0.2 * speed
            self.sizes[len(items)] = self.sizes.get(len(items), 0) + 1

    def _answer(self, items: list[_Item]) -> None:
        recognizer = items[0].job.recognizer
        try:
            batch = recognizer.eye.batch(item.picture for item in items)
            batch = Batch(batch.pictures, on_cpu(batch.views))
            answers = recognizer.answer(batch)
        except Exception as error:
            self._fail(items, error)
            return
        row = 0
        for item, answer in zip(items, answers, strict=True):
            if isinstance(answer, Unreadable):
                item.job.results[item.place] = answer
            elif isinstance(item.picture, Picture):
                item.job.results[item.place] = Seen(item.picture, _own(batch.views, row), answer)
                row += 1
        self._finish(items)

    def _finish(self, items: Iterable[_Item]) -> None:
        done = []
        with self._changed:
            for item in items:
                self._pending -= 1
                item.job.left -= 1
                if not item.job.left:
                    done.append(item.job)
            self._changed.notify()
        for job in done:
            if not job.future.done():
                job.future.set_result([each for each in job.results if each is not None])

    def _fail(self, items: list[_Item], error: Exception) -> None:
        for item in items:
            if not item.job.future.done():
                item.job.future.set_exception(error)
        self._finish(items)


def _own(views: Views, row: int) -> Views:
    """One row that does not keep the whole batch in memory."""
    local = None if views.local is None else views.local[row : row + 1].clone()
    return Views(views.vec[row : row + 1].clone(), local)
