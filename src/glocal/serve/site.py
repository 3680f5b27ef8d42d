"""The page itself, and what those ask who watch over the service."""

from __future__ import annotations

import mimetypes
import time
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from glocal.serve.problems import Json, missing
from glocal.serve.schemas import Health, problems
from glocal.serve.server import Server

PAGE = Path(__file__).parent / "page"
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}


def routes(server: Server) -> APIRouter:
    router = APIRouter(tags=["site"])
    workspace = server.workspace
    files = {path.relative_to(PAGE).as_posix(): path for path in sorted(PAGE.rglob("*")) if path.is_file()}

    def asset(name: str) -> Response:
        if name not in files:  # a list and not a folder: no name leads out of it
            raise missing(f"page {name[:80]!r}")
        path = files[name]
        kind = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return Response(path.read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})

    @router.get("/", include_in_schema=False)
    async def index() -> Response:
        return asset("index.html")

    @router.get("/page/{name:path}", include_in_schema=False)
    async def part(name: str) -> Response:
        return asset(name)

    @router.get("/health", response_model=Health, responses=problems())
    async def health() -> Response:
        now = workspace.snapshot
        model = workspace.model if now.recognizer is None else now.recognizer.contents.brain.name
        return Json(
            {
                "status": "ok",
                "version": now.version,
                "classes": len(now.classes),
                "model": model,
                "file": workspace.file.name,
                "uptime": time.time() - server.metrics.started,
            }
        )

    @router.get("/metrics", response_class=PlainTextResponse, responses=problems())
    async def metrics() -> Response:
        """For Prometheus."""
        now = workspace.snapshot
        gauges = {
            "version": now.version,
            "classes": len(now.classes),
            "photos": len(now.photos),
            "queue_pictures": server.batcher.pending,
            "queue_limit": server.settings.queue,
        }
        text = server.metrics.text(gauges, dict(server.batcher.sizes))
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
