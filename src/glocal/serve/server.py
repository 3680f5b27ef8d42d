"""What the routes share: the workspace, the worker that answers, the thread that changes, and the numbers of it all."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

from fastapi import Header
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary, disable_created_metrics
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glocal.serve.limits import Settings
from glocal.serve.problems import Json, busy
from glocal.serve.snapshot import findings_json
from glocal.serve.worker import Worker
from glocal.serve.workspace import Changed, Workspace

IfMatch = Annotated[
    str | None, Header(alias="If-Match", description="The version that the change is meant for; 409 when it is another")
]
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
disable_created_metrics()  # type: ignore[no-untyped-call]  # a second number for each of them that nobody asks for
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


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
        self.workspace, self.settings, self.started = workspace, settings, time.time()
        self.metrics = Metrics()
        self.worker = Worker(queue=settings.queue, on_batch=self.metrics.batches.observe)
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
            gauge("memory_bytes", "Held in memory now.", _memory)

    def uptime(self) -> float:
        return time.time() - self.started

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
        body = {"version": done.version, "findings": findings_json(done.findings), "message": done.message}
        return Json(body, headers={"ETag": f'"{done.version}"'})

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


STATM = Path("/proc/self/statm")  # Linux


def _memory() -> float:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
