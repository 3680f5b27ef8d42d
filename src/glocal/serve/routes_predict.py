"""Ask: pictures in, names or "unknown" out."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from glocal.serve.forms import form_schema, read_form
from glocal.serve.problems import Json
from glocal.serve.schemas import Answers, Digest, binary
from glocal.serve.server import Server
from glocal.serve.snapshot import Result
from glocal_runtime.photos import Unreadable
from glocal_runtime.support import thumbnail

FOR_EVER = "private, max-age=31536000, immutable"  # addresses with a digest: what is behind one never changes


def routes(server: Server) -> APIRouter:
    router = APIRouter(tags=["ask"])
    workspace, settings, metrics = server.workspace, server.settings, server.metrics

    @router.post("/predict", response_model=Answers, openapi_extra=form_schema(), status_code=200)
    async def predict(request: Request, remember: bool = True) -> Response:
        """Name pictures, or call them unknown; a picture that cannot be read is an answer with ``ok: false``."""
        now = workspace.snapshot
        now.enrolled()
        form = await read_form(request, settings)
        results = await server.worker.predict(now, form.images, settings.limits.answer_seconds)
        for each in results:
            metrics.pictures.labels(_kind(each)).inc()
            if remember and not isinstance(each, Unreadable):
                workspace.queries.add(each.query, now.model_hash)
        return Json({"version": now.version, "answers": [_json(each, remember) for each in results]})

    @router.get("/queries/{id}/thumbnail", response_class=Response, responses=binary("image/jpeg"))
    async def query_thumbnail(id: Digest) -> Response:
        small = await run_in_threadpool(thumbnail, workspace.query(id).picture.pixels)
        return Response(small, media_type="image/jpeg", headers={"Cache-Control": FOR_EVER})

    drawing = asyncio.Semaphore(2)  # an overlay costs as much as an answer

    @router.get("/queries/{id}/overlay", response_class=Response, responses=binary("image/png"))
    async def query_overlay(id: Digest) -> Response:
        """Which patches of the picture match which patches of which photo."""
        now = workspace.snapshot
        now.enrolled()
        query = workspace.query(id)
        async with drawing:
            return Response(await run_in_threadpool(now.overlay, query), media_type="image/png")

    return router


def _kind(result: Result) -> str:
    if isinstance(result, Unreadable):
        return "unreadable"
    return "unknown" if result.answer.is_unknown else "known"


def _json(result: Result, remember: bool) -> dict[str, Any]:
    if isinstance(result, Unreadable):
        return {"name": result.path, "ok": False, "error": result.error}
    fields = result.answer.to_json()
    return {"name": fields.pop("path"), "ok": True, "id": result.query.id if remember else None, **fields}
