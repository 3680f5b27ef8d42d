"""Decide: where "unknown" begins."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from glocal.serve.deciding import histogram, preview
from glocal.serve.problems import Json, Problem
from glocal.serve.schemas import ChangedBody, NewThreshold, Preview, Score, Share, ThresholdView, problems
from glocal.serve.server import IfMatch, Server


def routes(server: Server) -> APIRouter:
    router = APIRouter(prefix="/threshold", tags=["decide"])
    workspace = server.workspace

    @router.get("", response_model=ThresholdView, responses=problems(409))
    async def threshold() -> Response:
        """The threshold, its promise, and the scores of support photos (each left out in turn) and recent pictures."""
        now, recognizer = server.enrolled()
        shown = await run_in_threadpool(lambda: histogram(recognizer, workspace.judged.recent(now)))
        return Json({**recognizer.threshold.to_json(), **shown})

    @router.get("/preview", response_model=Preview, responses=problems(409))
    async def threshold_preview(
        value: Score | None = None, max_false_unknown: Share | None = None, per_class: bool | None = None
    ) -> Response:
        """What a change would do: nothing is saved."""
        now, recognizer = server.enrolled()
        _check(value, max_false_unknown, per_class)

        def look() -> dict[str, object]:
            recent = workspace.judged.recent(now)
            curve = now.promise_curve if value is not None else ()
            return preview(
                recognizer, recent, curve, value=value, max_false_unknown=max_false_unknown, per_class=per_class
            )

        return Json(await run_in_threadpool(look))

    @router.put("", response_model=ChangedBody, responses=problems(409))
    async def set_threshold(body: NewThreshold, if_match: IfMatch = None) -> Response:
        _check(body.value, body.max_false_unknown, body.per_class)
        return await server.change(
            workspace.set_threshold,
            body.value,
            max_false_unknown=body.max_false_unknown,
            per_class=body.per_class,
            expected=if_match,
        )

    return router


def _check(value: float | None, max_false_unknown: float | None, per_class: bool | None) -> None:
    by_promise = max_false_unknown is not None or per_class is not None
    if (value is not None) == by_promise:
        raise Problem(422, "invalid", "give either `value`, or `max_false_unknown` and `per_class`")
