"""Export: the file itself, and the recent answers as a table."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from typing import IO, Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from glocal.recognizer.results import COLUMNS, row
from glocal.serve.problems import empty
from glocal.serve.schemas import problems
from glocal.serve.server import Server

CHUNK = 1 << 18
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute
TEXTS = ("path", "label", "nearest", "reason", "warning", "error")


def routes(server: Server) -> APIRouter:
    router = APIRouter(prefix="/export", tags=["export"])
    workspace = server.workspace

    @router.get("/file", response_class=Response, responses=problems(409) | _download("application/octet-stream"))
    async def file() -> Response:
        """The ``.glocal`` file."""
        try:
            opened = await run_in_threadpool(workspace.file.open, "rb")
        except FileNotFoundError:
            raise empty() from None
        size = os.fstat(opened.fileno()).st_size  # of what was opened: the name may mean another file by now
        headers = {"Content-Length": str(size), "Content-Disposition": 'attachment; filename="recognizer.glocal"'}
        return StreamingResponse(_chunks(opened), media_type="application/octet-stream", headers=headers)

    @router.get("/results.csv", response_class=Response, responses=problems(409) | _download("text/csv"))
    async def results() -> Response:
        """The recent pictures with their answers, newest first."""
        now, recognizer = server.enrolled()

        def table() -> str:
            identity = recognizer.contents.identity
            return csv_text([row(each.answer, identity) for each in workspace.judged.recent(now)])

        headers = {"Content-Disposition": 'attachment; filename="results.csv"'}
        return Response(await run_in_threadpool(table), media_type="text/csv; charset=utf-8", headers=headers)

    return router


def csv_text(rows: list[dict[str, Any]]) -> str:
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


def _download(kind: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": "A file.", "content": {kind: {"schema": {"type": "string", "format": "binary"}}}}}
