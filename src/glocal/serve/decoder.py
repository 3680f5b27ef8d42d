"""Photos are decoded in processes, which can be ended: one that takes long or crashes its process stops no other."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from pebble import ProcessExpired, ProcessPool

from glocal.recognizer.photos.images import Preprocess, decode
from glocal.recognizer.photos.sources import Picture, Source, Unreadable, take
from glocal.serve.problems import Problem

QUICK, SLOW = 1.0, 10.0  # seconds for a photo; one that needs more than the first waits for its like
AT_ONCE = 2  # photos of one request: another's single photo does not wait for all of them


@dataclass(frozen=True)
class Upload:
    name: str
    data: bytes


class Decoder:
    def __init__(self, *, workers: int, max_pixels: int) -> None:
        self._max_pixels = max_pixels
        self._lanes = (_Lane(max(1, workers), QUICK), _Lane(1, SLOW, nice=10))

    async def take(self, uploads: Sequence[Upload], preprocess: Preprocess) -> list[Picture | Unreadable]:
        """The photos as an encoder sees them, in order; one that takes too long is a problem of the whole request."""
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(upload: Upload) -> Picture | Unreadable:
            async with turn:
                return await self._one(upload, preprocess)

        tasks = [asyncio.create_task(one(each)) for each in uploads]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _one(self, upload: Upload, preprocess: Preprocess) -> Picture | Unreadable:
        for lane in self._lanes:
            try:
                return await lane.run(upload, self._max_pixels, preprocess)
            except (TimeoutError, ProcessExpired):
                continue
        raise Problem(
            422,
            "rule",
            f"photo {upload.name} takes more than {SLOW:g} s to decode, or ends its decoder; save it again as JPEG or "
            "PNG of fewer pixels",
            code="slow-photo",
        )

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()


class _Lane:
    """Some processes, and the seconds that a photo may take in them."""

    def __init__(self, processes: int, seconds: float, *, nice: int = 0) -> None:
        self._processes, self._seconds, self._nice = processes, seconds, nice
        self._free = asyncio.Semaphore(processes)
        self._pool: ProcessPool | None = None

    async def run(self, upload: Upload, max_pixels: int, preprocess: Preprocess) -> Picture | Unreadable:
        async with self._free:
            if self._pool is not None and not self._pool.active:  # somebody ended an idle process
                self.close()
            if self._pool is None:
                self._pool = ProcessPool(
                    self._processes,
                    initializer=_start,
                    initargs=(self._nice,),
                    context=multiprocessing.get_context("forkserver"),  # a fork of a process with threads may hang
                )
            work = (upload, max_pixels, preprocess)
            future: Future[Picture | Unreadable] = self._pool.schedule(_take, work, timeout=self._seconds)
            return await asyncio.wrap_future(future)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()
            self._pool = None


def _take(upload: Upload, max_pixels: int, preprocess: Preprocess) -> Picture | Unreadable:
    read = partial(decode, upload.data, name=upload.name, max_pixels=max_pixels)
    return take(Source(upload.name, read), preprocess)


def _start(nice: int) -> None:
    """Let a signal end the process at once: a decoder written in C would go on until it is done."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.nice(nice)


def prepare() -> None:
    """Import once what the processes need: one that was ended is replaced in a moment."""
    multiprocessing.set_forkserver_preload([__name__])
