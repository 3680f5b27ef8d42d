"""What the routes share: the workspace, the thread that answers, the thread that changes, and the numbers of it all.

The answering thread takes all requests that have arrived, up to a batch of photos, through the model at once.  A lone
photo waits for no other.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NoReturn

from fastapi import Header, Request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary, disable_created_metrics
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glocal.recognizer.batches import BATCH
from glocal.recognizer.diagnosis.drift import Drift
from glocal.recognizer.encoders.session import encoding_within
from glocal.recognizer.photos.images import UnusableImage
from glocal.recognizer.photos.sources import Picture, Source, Unreadable
from glocal.serve.decoder import Decoder, Upload
from glocal.serve.forms import read_form
from glocal.serve.problems import Json, busy
from glocal.serve.security import Settings
from glocal.serve.snapshot import Result, Snapshot
from glocal.serve.workspace import Change, Changed, Workspace

RETRY = 5  # seconds after which a client may ask again
IfMatch = Annotated[
    str | None, Header(alias="If-Match", description="The version that the change is meant for; 409 when it is another")
]
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
disable_created_metrics()  # type: ignore[no-untyped-call]  # a second number for each of them that nobody asks for
STATM = Path("/proc/self/statm")  # Linux
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@dataclass(frozen=True)
class _Job:
    """The photos of one request, all answered by one version of the recognizer."""

    snapshot: Snapshot
    photos: Sequence[Picture | Unreadable]
    future: Future[list[Result]] = field(default_factory=Future)


class Worker:
    """The thread that answers."""

    def __init__(self, on_batch: Callable[[int], None] = lambda n: None, *, seconds: float = math.inf) -> None:
        self._on_batch, self._seconds = on_batch, seconds  # called with the number of photos; for encoding them
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="glocal-answer", daemon=True)
        self._thread.start()

    def submit(self, snapshot: Snapshot, photos: Sequence[Picture | Unreadable]) -> Future[list[Result]]:
        """Answers in the order of the photos; a future that is cancelled in time costs nothing."""
        job = _Job(snapshot, photos)
        with self._changed:
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
        while jobs := self._next_jobs():
            wanted = [job for job in jobs if job.future.set_running_or_notify_cancel()]
            if wanted:
                self._on_batch(sum(len(job.photos) for job in wanted))
            for job, outcome in zip(wanted, _outcomes(wanted, self._seconds), strict=True):
                if isinstance(outcome, Exception):
                    job.future.set_exception(outcome)
                else:
                    job.future.set_result(outcome)

    def _next_jobs(self) -> list[_Job]:
        """The oldest request, and those after it that fit into its batch; none when closed and all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            jobs: list[_Job] = []
            room = BATCH
            while self._jobs and (not jobs or self._jobs[0].snapshot is jobs[0].snapshot):
                if jobs and len(self._jobs[0].photos) > room:
                    break
                jobs.append(self._jobs.popleft())
                room -= len(jobs[-1].photos)
            return jobs


def _outcomes(jobs: list[_Job], seconds: float) -> list[list[Result] | Exception]:
    """The answers of each request, or the exception of this one alone."""
    if not jobs:
        return []
    try:
        with encoding_within(seconds):
            results = iter(jobs[0].snapshot.predict([photo for job in jobs for photo in job.photos]))
        return [list(islice(results, len(job.photos))) for job in jobs]
    except Exception as error:
        return [error] if len(jobs) == 1 else [_outcomes([job], seconds)[0] for job in jobs]


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
        self.pictures = Counter("glocal_pictures_total", "Photos asked about.", ["answer"], registry=here)
        self.changes = Counter("glocal_changes_total", "Changes made.", registry=here)
        self.batches = Summary("glocal_batch_pictures", "Photos answered at once.", registry=here)

    def gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        Gauge(f"glocal_{name}", about, registry=self.registry).set_function(value)


class Server:
    def __init__(self, workspace: Workspace, settings: Settings) -> None:
        self.workspace, self.settings, self._started = workspace, settings, time.monotonic()
        self.metrics = Metrics()
        self.worker = Worker(self.metrics.batches.observe, seconds=settings.limits.answer_seconds)
        self.decoder = Decoder(workers=workspace.workers, max_pixels=settings.limits.pixels)
        self._accepted = 0  # photos that wait or are being decoded and answered
        self._changes = ThreadPoolExecutor(1, thread_name_prefix="glocal-change")
        self._waiting = 0
        self._drift: tuple[Snapshot, Drift] | None = None
        gauge = self.metrics.gauge
        gauge(
            "unknown_share", "Of the last photos asked about; NaN before there are enough.", lambda: self._share(None)
        )
        gauge("unknown_share_limit", "Above it, something new has come.", lambda: self._share(1))
        gauge("version", "Of what is taught.", lambda: workspace.snapshot.version)
        gauge("classes", "Classes taught.", lambda: len(workspace.snapshot.classes))
        gauge("photos", "Support photos.", lambda: len(workspace.snapshot.photos))
        gauge("queue_pictures", "Photos that wait or are being answered.", lambda: self._accepted)
        gauge("queue_limit", "Photos that may.", lambda: settings.queue)
        gauge("uptime_seconds", "Since the start.", self.uptime)
        if STATM.exists():
            page = os.sysconf("SC_PAGE_SIZE")
            gauge("memory_bytes", "Held in memory now.", lambda: int(STATM.read_text().split()[1]) * page)

    def watch(self, now: Snapshot, is_unknown: bool) -> None:
        """Count an answer of this version for the share of unknowns."""
        if self._drift is None or self._drift[0] is not now:
            self._drift = now, Drift(now.enrolled().threshold)
        self._drift[1].add(is_unknown)

    @property
    def drift(self) -> str:
        return "" if self._drift is None else self._drift[1].sentence

    def _share(self, end: int | None) -> float:
        """The share of unknowns, or an end of the range that it should lie in."""
        drift = None if self._drift is None else self._drift[1]
        value = None if drift is None else drift.share if end is None else drift.range and drift.range[end]
        return math.nan if value is None else value

    async def now(self) -> Snapshot:
        """The version that answers; what another program did to the file is taken in first."""
        if self.workspace.is_current:
            return self.workspace.snapshot
        return await run_in_threadpool(self.workspace.take_in)

    async def answers(self, now: Snapshot, uploads: Sequence[Upload]) -> list[Result]:
        """In the order of the photos; a request that takes too long is not computed any more."""
        with self._room(len(uploads)):
            try:
                async with asyncio.timeout(self.settings.limits.answer_seconds):
                    photos = await self.decoder.take(uploads, now.enrolled().embedder.preprocess)
                    return await asyncio.wrap_future(self.worker.submit(now, photos))
            except TimeoutError:
                raise busy("the photos were not answered in time", RETRY) from None

    async def photos(self, request: Request, *fields: str) -> tuple[list[Source], dict[str, str]]:
        """The photos of a form for a change, decoded before its turn comes, and its fields."""
        uploads, texts = await read_form(request, self.settings, fields=fields)
        with self._room(len(uploads)):
            preprocess = await run_in_threadpool(self.workspace.preprocess)
            return [_source(each) for each in await self.decoder.take(uploads, preprocess)], texts

    @contextmanager
    def _room(self, n: int) -> Iterator[None]:
        if self._accepted + n > self.settings.queue:
            raise busy("too many photos at once", RETRY)
        self._accepted += n
        try:
            yield
        finally:
            self._accepted -= n

    def uptime(self) -> float:
        return time.monotonic() - self._started

    async def change(self, label: str, change: Change, expected: str | None, **more: Any) -> Response:
        """In a thread of its own, after those that came before."""
        return await self._in_turn(partial(self.workspace.change, label, change, expected=expected, **more))

    async def go(self, by: int, expected: str | None) -> Response:
        return await self._in_turn(partial(self.workspace.go, by, expected=expected))

    async def _in_turn(self, change: Callable[[], Changed]) -> Response:
        if self._waiting >= self.settings.limits.changes:
            raise busy("too many changes at once", RETRY)
        self._waiting += 1
        try:
            done = await asyncio.get_running_loop().run_in_executor(self._changes, change)
        finally:
            self._waiting -= 1
        self.metrics.changes.inc()
        return Json(done.to_json(), headers={"ETag": f'"{done.version}"'})

    def close(self) -> None:
        """Finish what was accepted."""
        self.decoder.close()
        self.worker.close()
        self._changes.shutdown()
        self.workspace.close()


def _source(photo: Picture | Unreadable) -> Source:
    if isinstance(photo, Unreadable):
        return Source(photo.path, partial(_raise, UnusableImage(photo.path, photo.error)), photo)
    return Source(photo.name, lambda: photo.pixels, photo)


def _raise(error: Exception) -> NoReturn:
    raise error


class MetricsMiddleware:
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
