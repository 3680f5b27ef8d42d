"""What ``glocal.serve.server`` is measured against: threads that decode ahead, and one that embeds what is decoded.

It was the server's own until the measurement in ``serve.py`` showed that one plain thread is as fast.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from glocal.recognizer.encoder import BATCH
from glocal.recognizer.photos.sources import Picture, Source, Unreadable, take
from glocal.serve.snapshot import Snapshot


@dataclass
class _Job:
    results: list[Any]
    left: int
    future: Future[list[Any]] = field(default_factory=Future)


@dataclass(frozen=True)
class _Item:
    job: _Job
    place: int
    picture: Picture | Unreadable


class DecodingBatcher:
    def __init__(self, *, workers: int = 2) -> None:
        self._ready: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._pool = ThreadPoolExecutor(workers)
        self._snapshot: Snapshot | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, snapshot: Snapshot, sources: Sequence[Source]) -> Future[list[Any]]:
        self._snapshot = snapshot  # one for a whole measurement
        job = _Job([None] * len(sources), len(sources))
        for place, source in enumerate(sources):
            self._pool.submit(self._decode, job, place, source)
        return job.future

    def close(self) -> None:
        self._pool.shutdown()
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _decode(self, job: _Job, place: int, source: Source) -> None:
        assert self._snapshot is not None
        picture = take(source, self._snapshot.enrolled().encoder.preprocess)
        with self._changed:
            self._ready.append(_Item(job, place, picture))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self._closed)
                items = [self._ready.popleft() for _ in range(min(BATCH, len(self._ready)))]
            if not items:
                return
            assert self._snapshot is not None
            who = self._snapshot.enrolled()
            batch = who.encoder.batch(item.picture for item in items)
            for row, (item, answer) in enumerate(zip(items, who.answer(batch), strict=True)):
                views = batch.views.rows(slice(row, row + 1)).stored()  # every picture of a benchmark is readable
                item.job.results[item.place] = (views, answer)
                item.job.left -= 1
                if not item.job.left:
                    item.job.future.set_result(item.job.results)
