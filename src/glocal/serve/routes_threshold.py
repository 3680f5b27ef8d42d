"""Decide: where "unknown" begins, where scores lie, and what another threshold would change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from glocal.serve.problems import Json, Problem
from glocal.serve.schemas import ChangedBody, NewThreshold, Preview, Score, Share, ThresholdView
from glocal.serve.server import IfMatch, Server

BINS = 32
FAR = 1e12  # a threshold beyond it is not drawn
MARGIN = 0.05  # of the range, on both sides


def routes(server: Server) -> APIRouter:
    router = APIRouter(prefix="/threshold", tags=["decide"])
    workspace = server.workspace

    @router.get("", response_model=ThresholdView)
    async def threshold() -> Response:
        """The threshold, its promise, and the scores of support photos (each left out in turn) and recent pictures."""
        now = workspace.snapshot
        found = now.enrolled().threshold

        def shown() -> dict[str, Any]:
            asked = [each.answer.open_score for each in workspace.recent(now)]
            return histogram(now.support_scores, asked, found.value)

        return Json({**found.to_json(), **await run_in_threadpool(shown)})

    @router.get("/preview", response_model=Preview)
    async def threshold_preview(
        value: Score | None = None, max_false_unknown: Share | None = None, per_class: bool | None = None
    ) -> Response:
        """What a change would do: nothing is saved."""
        now = workspace.snapshot
        now.enrolled()
        choice = _checked(NewThreshold(value=value, max_false_unknown=max_false_unknown, per_class=per_class))
        return Json(await run_in_threadpool(lambda: now.preview(choice, workspace.recent(now))))

    @router.put("", response_model=ChangedBody)
    async def set_threshold(body: NewThreshold, if_match: IfMatch = None) -> Response:
        return await server.change(workspace.set_threshold, _checked(body), expected=if_match)

    return router


def histogram(support: Sequence[float], asked: Sequence[float], threshold: float) -> dict[str, Any]:
    """``range`` holds every score and, unless it is out of all reach, the threshold."""
    points = [*support, *asked, *([threshold] if abs(threshold) <= FAR else [])] or [0.0]
    low, high = min(points), max(points)
    pad = MARGIN * (high - low) or 0.5
    edges = np.linspace(low - pad, high + pad, BINS + 1)
    counts = {name: np.histogram(some, edges)[0].tolist() for name, some in (("support", support), ("recent", asked))}
    return {"histogram": {"edges": edges.tolist(), **counts}, "range": [float(edges[0]), float(edges[-1])]}


def _checked(choice: NewThreshold) -> NewThreshold:
    by_promise = choice.max_false_unknown is not None or choice.per_class is not None
    if (choice.value is not None) == by_promise:
        raise Problem(422, "invalid", "give either `value`, or `max_false_unknown` and `per_class`")
    return choice
