"""The HTTP API of the threshold: where scores lie, what another threshold would change, and changing it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from glocal.recognizer import Recognizer
from glocal.recognizer.diagnosis.advice import Finding, threshold_moved
from glocal.serve import schemas
from glocal.serve.problems import Json, Problem
from glocal.serve.server import IfMatch, Server

BINS = 32
FAR = 1e12  # a threshold beyond it is not drawn
MARGIN = 0.05  # of the range, on both sides


def decide(server: Server) -> APIRouter:
    router = APIRouter(prefix="/threshold", tags=["decide"])
    workspace = server.workspace

    @router.get("", response_model=schemas.ThresholdView)
    async def view() -> Response:
        """The threshold, its target rate, leave-one-out scores of support photos and scores of recent ones."""
        now = await server.now()
        recognizer = now.enrolled()
        threshold, decision = recognizer.threshold, recognizer.contents.decision
        more = {"with_unknown": recognizer.contents.promise.with_unknown}

        def shown() -> dict[str, Any]:
            asked = [each.answer.open_score for each in workspace.recent(now)]
            return histogram(decision.levelled(decision.left_out).tolist(), asked, threshold.value)

        return Json({**threshold.to_json(), **more, **await run_in_threadpool(shown)})

    @router.get("/preview", response_model=schemas.Preview)
    async def threshold_preview(
        value: schemas.Score | None = None,
        target_rate: schemas.Share | None = None,
        with_unknown: schemas.Share | None = None,
    ) -> Response:
        """What a change would do: nothing is saved."""
        now = await server.now()
        now.enrolled()
        choice = schemas.NewThreshold(value=value, target_rate=target_rate, with_unknown=with_unknown)
        _checked(choice)
        return Json(await run_in_threadpool(lambda: now.preview(choice, workspace.recent(now))))

    @router.put("", response_model=schemas.ChangedBody)
    async def set_threshold(body: schemas.NewThreshold, if_match: IfMatch = None) -> Response:
        label = f"threshold set {'by hand' if _checked(body).value is not None else 'for a target rate'}"
        return await server.change(label, partial(_set_threshold, body), if_match)

    return router


def _set_threshold(choice: schemas.NewThreshold, recognizer: Recognizer) -> list[Finding]:
    before = recognizer.contents.decision
    recognizer.set_threshold(**choice.model_dump())
    moved = threshold_moved(recognizer.classes, before, recognizer.classes, recognizer.contents.decision)
    return [each for each in moved if each.kind != "threshold kept"]  # which is about other classes


def histogram(support: Sequence[float], asked: Sequence[float], threshold: float) -> dict[str, Any]:
    """``range`` holds every score, and the threshold unless that is out of all reach."""
    points = [*support, *asked, *([threshold] if abs(threshold) <= FAR else [])] or [0.0]
    low, high = min(points), max(points)
    pad = MARGIN * (high - low) or 0.5
    edges = np.linspace(low - pad, high + pad, BINS + 1)
    counts = {name: np.histogram(some, edges)[0].tolist() for name, some in (("support", support), ("recent", asked))}
    return {"histogram": {"edges": edges.tolist(), **counts}, "range": [float(edges[0]), float(edges[-1])]}


def _checked(choice: schemas.NewThreshold) -> schemas.NewThreshold:
    for_rate = any(each is not None for name, each in choice if name != "value")
    if (choice.value is not None) == for_rate:
        raise Problem(422, "invalid", "give either `value`, or `target_rate`, `with_unknown`")
    return choice
