"""Ask: pictures in, names or "unknown" out."""

from __future__ import annotations

import asyncio
import io
import time
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from glocal.recognizer import Prediction, Unreadable
from glocal.recognizer.eye import Batch
from glocal.recognizer.support import thumbnail
from glocal.serve.batcher import Result
from glocal.serve.problems import Json, missing
from glocal.serve.remembered import Query
from glocal.serve.schemas import Answers, Digest, problems
from glocal.serve.server import Server
from glocal.serve.uploads import form_schema, read_form
from glocal_runtime.explain import explain

FOR_EVER = "private, max-age=31536000, immutable"  # addresses with a digest: what is behind one never changes


def routes(server: Server) -> APIRouter:
    router = APIRouter(tags=["ask"])
    queries = server.workspace.queries

    @router.post(
        "/predict", response_model=Answers, responses=problems(409, 415), openapi_extra=form_schema(), status_code=200
    )
    async def predict(request: Request, remember: bool = True) -> Response:
        """Name pictures, or call them unknown; a picture that cannot be read is an answer with ``ok: false``."""
        now, recognizer = server.enrolled()
        form = await read_form(request, server.settings)
        results = await server.look(recognizer, form.images)
        if remember:
            for each in results:
                if not isinstance(each, Unreadable):
                    queries.add(Query(each.picture, each.views, time.time()), now.model)
        for each in results:
            server.metrics.count("pictures_total", answer=_kind(each))
        return Json({"version": now.version, "answers": [_plain(each, remember) for each in results]})

    @router.get("/queries/{id}/thumbnail", response_class=Response, responses=problems() | _picture("image/jpeg"))
    async def query_thumbnail(id: Digest) -> Response:
        query = queries.get(id)
        if query is None:
            raise missing(f"remembered picture {id[:16]!r}")
        small = await run_in_threadpool(thumbnail, query.picture.pixels)
        return Response(small, media_type="image/jpeg", headers={"Cache-Control": FOR_EVER})

    drawing = asyncio.Semaphore(2)  # an overlay costs as much as an answer

    @router.get("/queries/{id}/overlay", response_class=Response, responses=problems(409) | _picture("image/png"))
    async def query_overlay(id: Digest) -> Response:
        """Which patches of the picture match which patches of which photo."""
        _, recognizer = server.enrolled()
        query = queries.get(id)
        if query is None:
            raise missing(f"remembered picture {id[:16]!r}")

        def draw() -> bytes:
            batch = Batch((query.picture,), query.views)
            (answer,) = recognizer.answer(batch)
            assert isinstance(answer, Prediction)
            buffer = io.BytesIO()
            explain(recognizer, batch, 0, answer).save(buffer, "PNG")
            return buffer.getvalue()

        async with drawing:
            return Response(await run_in_threadpool(draw), media_type="image/png")

    return router


def _kind(result: Result) -> str:
    if isinstance(result, Unreadable):
        return "unreadable"
    return "unknown" if result.answer.is_unknown else "known"


def _plain(result: Result, remember: bool) -> dict[str, Any]:
    if isinstance(result, Unreadable):
        return {"name": result.path, "ok": False, "error": result.error}
    fields = result.answer.to_json()
    return {"name": fields.pop("path"), "ok": True, "id": result.picture.digest if remember else None, **fields}


def _picture(kind: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": "A picture.", "content": {kind: {"schema": {"type": "string", "format": "binary"}}}}}
