"""Numbers for Prometheus, in its text format."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
Labels = tuple[tuple[str, str], ...]


class Metrics:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, Labels], float] = {}
        self._seconds: dict[str, list[float]] = {}  # by route: a count for each bucket, their number, their sum
        self.started = time.time()

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        with self._lock:
            key = (name, tuple(sorted(labels.items())))
            self._counts[key] = self._counts.get(key, 0) + by

    def observe(self, route: str, seconds: float) -> None:
        with self._lock:
            row = self._seconds.setdefault(route, [0.0] * (len(BUCKETS) + 2))
            for i, edge in enumerate(BUCKETS):
                row[i] += seconds <= edge
            row[-2] += 1
            row[-1] += seconds

    def text(self, gauges: Mapping[str, float], batches: Mapping[int, int]) -> str:
        return "\n".join(self._lines(gauges, batches)) + "\n"

    def _lines(self, gauges: Mapping[str, float], batches: Mapping[int, int]) -> Iterator[str]:
        with self._lock:
            counts, seconds = sorted(self._counts.items()), {route: list(row) for route, row in self._seconds.items()}
        last = ""
        for (name, labels), value in counts:
            if name != last:
                yield f"# TYPE glocal_{name} counter"
            last = name
            yield f"glocal_{name}{_braces(labels)} {value:g}"
        yield "# TYPE glocal_request_seconds histogram"
        for route, row in sorted(seconds.items()):
            for edge, n in zip((*map(str, BUCKETS), "+Inf"), row, strict=False):
                yield f"glocal_request_seconds_bucket{_braces((('le', edge), ('route', route)))} {n:g}"
            yield f"glocal_request_seconds_count{_braces((('route', route),))} {row[-2]:g}"
            yield f"glocal_request_seconds_sum{_braces((('route', route),))} {row[-1]:.6f}"
        yield "# TYPE glocal_batch_pictures summary"
        yield f"glocal_batch_pictures_count {sum(batches.values())}"
        yield f"glocal_batch_pictures_sum {sum(size * n for size, n in batches.items())}"
        for gauge, now in {**gauges, "uptime_seconds": time.time() - self.started, **memory()}.items():
            yield f"# TYPE glocal_{gauge} gauge"
            yield f"glocal_{gauge} {now:.10g}"


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
            self._metrics.count("requests_total", method=_known(scope["method"]), route=route, status=str(status))
            self._metrics.observe(route, time.perf_counter() - started)


def memory() -> dict[str, float]:
    """Bytes that the process holds in memory now, where the system tells it in a file."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return {}
    return {"memory_bytes": float(pages * os.sysconf("SC_PAGE_SIZE"))}


def _known(method: str) -> str:
    return method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"


def _braces(labels: Labels) -> str:
    def quoted(text: str) -> str:
        return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    return "{" + ",".join(f'{name}="{quoted(value)}"' for name, value in labels) + "}" if labels else ""
