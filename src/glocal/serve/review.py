"""Review: what was called unknown, in groups that may become classes; and answers that were wrong."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from glocal.serve.judged import Recent
from glocal.serve.problems import Json, Problem, missing
from glocal.serve.schemas import ChangedBody, Correct, Digest, NameGroup, problems
from glocal.serve.schemas import Review as ReviewBody
from glocal.serve.server import IfMatch, Server
from glocal.serve.snapshot import Snapshot

GroupId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


def routes(server: Server) -> APIRouter:
    router = APIRouter(prefix="/review", tags=["review"])
    workspace = server.workspace

    @router.get("", response_model=ReviewBody, responses=problems())
    async def review() -> Response:
        """Groups of unknown pictures, and all recent ones, as the recognizer of today sees them."""
        now = workspace.snapshot

        def look() -> dict[str, Any]:
            groups = [
                {
                    "id": each.id,
                    "n": len(each.members),
                    "suggestion": each.suggestion,
                    "items": [_plain(member, now) for member in each.members],
                }
                for each in workspace.judged.groups(now)
            ]
            recent = [_plain(each, now) for each in workspace.judged.recent(now)]
            return {"version": now.version, "groups": groups, "recent": recent}

        return Json(await run_in_threadpool(look))

    @router.post("/groups/{id}", response_model=ChangedBody, responses=problems(409))
    async def name_group(id: GroupId, body: NameGroup, if_match: IfMatch = None) -> Response:
        """Enroll the pictures of a group, or those named in ``items``, as a class, a new one or one that is there."""
        items = body.items
        if items is None:
            now = workspace.snapshot
            groups = await run_in_threadpool(workspace.judged.groups, now)
            found = next((each for each in groups if each.id == id), None)
            if found is None:
                raise Problem(
                    409, "stale", "there is no such group any more; read the review again", version=now.version
                )
            items = [each.query.id for each in found.members]
        unique = list(dict.fromkeys(items))
        return await server.change(workspace.add_queries, body.name, unique, expected=if_match)

    @router.post("/queries/{id}", response_model=ChangedBody, responses=problems(409))
    async def correct(id: Digest, body: Correct, if_match: IfMatch = None) -> Response:
        """The picture shows this class: it joins it."""
        return await server.change(workspace.add_queries, body.class_, [id], expected=if_match)

    @router.delete("/queries/{id}", status_code=204, responses=problems())
    async def forget(id: Digest) -> Response:
        """Forget a picture that was asked about."""
        if not await run_in_threadpool(workspace.queries.forget, id):
            raise missing(f"remembered picture {id[:16]!r}")
        return Response(status_code=204)

    return router


def _plain(recent: Recent, now: Snapshot) -> dict[str, Any]:
    query, answer = recent.query, recent.answer
    return {
        "id": query.id,
        "name": query.picture.name,
        "thumbnail": f"/queries/{query.id}/thumbnail",
        "label": answer.label,
        "is_unknown": answer.is_unknown,
        "open_score": answer.open_score,
        "nearest": answer.nearest,
        "probability": answer.probability,
        "enrolled": query.id in now.photos,
        "reason": answer.reason,
    }
