"""What the routes share: the workspace, the thread that answers, the thread that changes, and the numbers of it all.

The answering thread takes what has arrived, up to a batch of pictures, through the model at once: under load batches
fill by themselves, and a lone picture waits for nobody.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from fastapi import Header
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary, disable_created_metrics
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glocal.recognizer.encoder import BATCH
from glocal.recognizer.photos.images import Pixels, UnusableImage
from glocal.recognizer.photos.sources import Source
from glocal.serve.problems import Json, busy
from glocal.serve.security import Limits, Settings
from glocal.serve.snapshot import Result, Snapshot
from glocal.serve.workspace import Changed, Workspace

LONGEST_WAIT = 60  # seconds that a client is told to wait at most
IfMatch = Annotated[
    str | None, Header(alias="If-Match", description="The version that the change is meant for; 409 when it is another")
]
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
disable_created_metrics()  # type: ignore[no-untyped-call]  # a second number for each of them that nobody asks for
STATM = Path("/proc/self/statm")  # Linux
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@dataclass(frozen=True)
class _Job:
    """The pictures of one request, all answered by one version of the recognizer."""

    snapshot: Snapshot
    sources: Sequence[Source]
    future: Future[list[Result]] = field(default_factory=Future)
    abandoned: threading.Event = field(default_factory=threading.Event)  # nobody waits for it any more

    @property
    def pixels(self) -> int:
        return sum(each.pixels for each in self.sources)

    def wanted(self) -> list[Source]:
        """The pictures, which are not decoded any more when nobody waits."""
        return [replace(each, read=partial(self._read, each)) for each in self.sources]

    def _read(self, source: Source) -> Pixels:
        if self.abandoned.is_set():
            raise UnusableImage(source.name, "nobody waits for the answer any more")
        return source.read()


class Worker:
    def __init__(self, *, queue: int, on_batch: Callable[[int], None], pixels: int = Limits.queue_pixels) -> None:
        self._most, self._most_pixels, self._on_batch = queue, pixels, on_batch  # which is told the number of pictures
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._speed = 0.0  # pictures per second, of late
        self.pending = 0  # pictures accepted and not yet answered
        self._pending_pixels = 0
        self._thread = threading.Thread(target=self._run, name="glocal-answer", daemon=True)
        self._thread.start()

    async def predict(self, snapshot: Snapshot, sources: Sequence[Source], seconds: float) -> list[Result]:
        """Answers in the order of the pictures; a request that takes too long is not computed any more."""
        job = self._take(snapshot, sources)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(job.future)
        except TimeoutError:
            raise busy("the pictures were not answered in time", self._retry_after()) from None
        finally:
            job.abandoned.set()  # also when the client hung up

    def submit(self, snapshot: Snapshot, sources: Sequence[Source]) -> Future[list[Result]]:
        """All of them or none; busy when there is no room.  A future that is cancelled in time costs nothing."""
        return self._take(snapshot, sources).future

    def _take(self, snapshot: Snapshot, sources: Sequence[Source]) -> _Job:
        job = _Job(snapshot, sources)
        with self._changed:
            crowded = self.pending and self._pending_pixels + job.pixels > self._most_pixels
            if self._closed or crowded or self.pending + len(sources) > self._most:
                raise busy("too many pictures at once", self._retry_after())
            self.pending += len(sources)
            self._pending_pixels += job.pixels
            self._jobs.append(job)
            self._changed.notify()
        return job

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
                self._pending_pixels -= sum(job.pixels for job in jobs)
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
            results = iter(jobs[0].snapshot.predict([source for job in jobs for source in job.wanted()]))
            return [list(islice(results, len(job.sources))) for job in jobs]
        except Exception as error:
            return [error] if len(jobs) == 1 else [self._outcomes([job])[0] for job in jobs]

    def _retry_after(self) -> int:
        """Seconds until there is room again, as far as one can tell."""
        return min(LONGEST_WAIT, max(1, math.ceil(self.pending / self._speed))) if self._speed else 1


class Metrics:
    """Of one server: two of them in a process do not add up."""

    def __init__(self) -> None:
        self.registry = here = CollectorRegistry()
        self.requests = Counter(
            "glocal_requests_total", "Requests answered.", ["method", "route", "status"], registry=here
        )
        self.seconds = Histogram(
            "glocal_request_seconds", "Time until the answer.", ["route"], buckets=BUCKETS, registry=here
        )
        self.pictures = Counter("glocal_pictures_total", "Pictures asked about.", ["answer"], registry=here)
        self.changes = Counter("glocal_changes_total", "Changes made.", registry=here)
        self.batches = Summary("glocal_batch_pictures", "Pictures answered at once.", registry=here)

    def gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        Gauge(f"glocal_{name}", about, registry=self.registry).set_function(value)


class Server:
    def __init__(self, workspace: Workspace, settings: Settings) -> None:
        self.workspace, self.settings, self._started = workspace, settings, time.monotonic()
        self.metrics = Metrics()
        self.worker = Worker(
            queue=settings.queue, on_batch=self.metrics.batches.observe, pixels=settings.limits.queue_pixels
        )
        self._changes = ThreadPoolExecutor(1, thread_name_prefix="glocal-change")
        self._waiting = 0
        gauge = self.metrics.gauge
        gauge("version", "Of what is taught.", lambda: workspace.snapshot.version)
        gauge("classes", "Classes taught.", lambda: len(workspace.snapshot.classes))
        gauge("photos", "Support photos.", lambda: len(workspace.snapshot.photos))
        gauge("queue_pictures", "Pictures that wait or are being answered.", lambda: self.worker.pending)
        gauge("queue_limit", "Pictures that may.", lambda: settings.queue)
        gauge("uptime_seconds", "Since the start.", self.uptime)
        if STATM.exists():
            page = os.sysconf("SC_PAGE_SIZE")
            gauge("memory_bytes", "Held in memory now.", lambda: int(STATM.read_text().split()[1]) * page)

    async def now(self) -> Snapshot:
        """The version that answers; what another program did to the file is taken in first."""
        if self.workspace.is_current:
            return self.workspace.snapshot
        return await run_in_threadpool(self.workspace.take_in)

    def uptime(self) -> float:
        return time.monotonic() - self._started

    async def change(self, change: Callable[..., Changed], *args: Any, **kwargs: Any) -> Response:
        """In a thread of its own, after those that came before."""
        if self._waiting >= self.settings.limits.changes:
            raise busy("too many changes at once", 2)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            done = await loop.run_in_executor(self._changes, lambda: change(*args, **kwargs))
        finally:
            self._waiting -= 1
        self.metrics.changes.inc()
        return Json(done.to_json(), headers={"ETag": f'"{done.version}"'})

    def close(self) -> None:
        """Finish what was accepted."""
        self.worker.close()
        self._changes.shutdown()
        self.workspace.close()


class Measured:
    """ASGI wrapper: counts and times requests by route, not by address, of which there is no end."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        started = time.perf_counter()

        async def listening(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, listening)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.requests.labels(method, route, status).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - started)
