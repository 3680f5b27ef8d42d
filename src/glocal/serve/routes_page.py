"""The page itself, what can be downloaded, and what monitoring asks."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from glocal.recognizer.results import COLUMNS
from glocal.serve.problems import Json, missing, no_classes
from glocal.serve.schemas import Health, binary
from glocal.serve.server import Server

PAGE = Path(__file__).parent / "page"
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
CHUNK = 1 << 18
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute
TEXTS = ("path", "label", "nearest", "reason", "warning", "error")


def routes(server: Server) -> APIRouter:
    router = APIRouter()
    workspace = server.workspace
    assets = {path.name: path for path in PAGE.iterdir() if path.suffix in TYPES}

    @router.get("/", include_in_schema=False)
    @router.get("/page/{name:path}", include_in_schema=False)
    async def page(name: str = "index.html") -> Response:
        if name not in assets:  # a list and not a folder: no name leads out of it
            raise missing(f"page {name[:80]!r}")
        kind = TYPES[assets[name].suffix]
        return Response(assets[name].read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})

    @router.get("/health", tags=["site"], response_model=Health)
    async def health() -> Response:
        now = workspace.snapshot
        return Json(
            {
                "status": "ok",
                "version": now.version,
                "classes": len(now.classes),
                "model": now.model_name or workspace.model,
                "file": workspace.file.name,
                "uptime": server.uptime(),
            }
        )

    @router.get("/metrics", tags=["site"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(generate_latest(server.metrics.registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    @router.get(
        "/export/file",
        tags=["export"],
        response_class=Response,
        responses=binary("application/octet-stream"),
    )
    async def file() -> Response:
        """The ``.glocal`` file."""
        try:
            opened = await run_in_threadpool(workspace.file.open, "rb")
        except FileNotFoundError:
            raise no_classes() from None
        size = os.fstat(opened.fileno()).st_size  # of what was opened: the name may mean another file by now
        headers = {"Content-Length": str(size), "Content-Disposition": 'attachment; filename="recognizer.glocal"'}
        return StreamingResponse(_chunks(opened), media_type="application/octet-stream", headers=headers)

    @router.get("/export/results.csv", tags=["export"], response_class=Response, responses=binary("text/csv"))
    async def results() -> Response:
        """The recent pictures with their answers, newest first."""
        now = workspace.snapshot
        now.enrolled()
        table = await run_in_threadpool(lambda: _csv(now.table_row(each.answer) for each in workspace.recent(now)))
        headers = {"Content-Disposition": 'attachment; filename="results.csv"'}
        return Response(table, media_type="text/csv; charset=utf-8", headers=headers)

    return router


def _csv(rows: Iterable[dict[str, Any]]) -> str:
    """With a mark before every text that a spreadsheet would take for a formula."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, restval="", lineterminator="\r\n")
    writer.writeheader()
    for each in rows:
        marked = {name: f"'{each[name]}" for name in TEXTS if str(each.get(name, "")).startswith(FORMULA)}
        writer.writerow(each | marked)
    return buffer.getvalue()


def _chunks(opened: IO[bytes]) -> Iterator[bytes]:
    with opened:
        while chunk := opened.read(CHUNK):
            yield chunk
