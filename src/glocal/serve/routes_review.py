"""Review: what was called unknown, in groups that may become classes; and answers that were wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Path
from numpy.typing import NDArray
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from glocal.serve.problems import Json, Problem, missing
from glocal.serve.schemas import ChangedBody, Correct, Digest, Item, NameGroup, Review
from glocal.serve.server import IfMatch, Server
from glocal.serve.snapshot import QueryAnswer, Snapshot

Vectors = NDArray[np.float32]
GroupId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]
WITHOUT_PAIRS = 0.5  # cosine to group by when there is a single photo


def routes(server: Server) -> APIRouter:
    router = APIRouter(prefix="/review", tags=["review"])
    workspace = server.workspace

    @router.get("", response_model=Review)
    async def review() -> Response:
        """Groups of unknown pictures, and all recent ones, as the current version answers."""
        now = workspace.snapshot

        def shown() -> dict[str, Any]:
            recent = workspace.recent(now)
            return {
                "version": now.version,
                "groups": [_group_json(members, now) for members in unknown_groups(recent, now)],
                "recent": [_item_json(each, now) for each in recent],
            }

        return Json(await run_in_threadpool(shown))

    @router.post("/groups/{id}", response_model=ChangedBody)
    async def name_group(id: GroupId, body: NameGroup, if_match: IfMatch = None) -> Response:
        """Enroll the pictures of a group, or those named in ``items``, as a class, a new one or one that is there."""
        items = body.items
        if items is None:
            now = workspace.snapshot
            groups = await run_in_threadpool(lambda: unknown_groups(workspace.recent(now), now))
            ids = ([each.query.id for each in members] for members in groups)
            items = next((some for some in ids if group_id(some) == id), None)
            if items is None:
                raise Problem(
                    409, "stale", "there is no such group any more; read the review again", version=now.version
                )
        unique = list(dict.fromkeys(items))
        return await server.change(workspace.add_queries, body.name, unique, expected=if_match)

    @router.post("/queries/{id}", response_model=ChangedBody)
    async def correct(id: Digest, body: Correct, if_match: IfMatch = None) -> Response:
        """The picture shows this class: it joins it."""
        return await server.change(workspace.add_queries, body.class_, [id], expected=if_match)

    @router.delete("/queries/{id}", status_code=204)
    async def forget(id: Digest) -> Response:
        """Forget a picture that was asked about."""
        if not await run_in_threadpool(workspace.queries.forget, id):
            raise missing(f"remembered picture {id[:16]!r}")
        return Response(status_code=204)

    return router


def unknown_groups(recent: Sequence[QueryAnswer], now: Snapshot) -> list[list[QueryAnswer]]:
    """What is called unknown and was not enrolled since, grouped by likeness; the largest group first."""
    unknown = [each for each in recent if each.answer.is_unknown and each.query.id not in now.photos]
    if not unknown:
        return []
    vectors = np.concatenate([each.query.views.vec for each in unknown])
    return [[unknown[i] for i in rows] for rows in group(vectors, _level(now))]


@lru_cache(maxsize=1)
def _level(now: Snapshot) -> float:
    return likeness(*now.support_vectors)


def group(vectors: Vectors, level: float) -> list[list[int]]:
    """Vectors (n, D) -> rows that belong together, the largest group first.

    Groups are merged, the most alike two first, while the mean cosine between their members is at least ``level``: a
    chain of small steps does not make a group.
    """
    members = [[i] for i in range(len(vectors))]
    unit = _unit(vectors)
    total = (unit @ unit.T).astype(np.float64)  # summed over the pairs of two groups
    size = np.ones(len(vectors))
    alive = np.ones(len(vectors), dtype=bool)
    while alive.sum() > 1:
        mean = total / np.outer(size, size)
        mean[~alive] = mean[:, ~alive] = -np.inf
        np.fill_diagonal(mean, -np.inf)
        i, j = sorted(np.unravel_index(int(mean.argmax()), mean.shape))
        if mean[i, j] < level:
            break
        members[i] += members[j]
        total[i] += total[j]
        total[:, i] += total[:, j]
        size[i] += size[j]
        alive[j] = False
    found = [sorted(members[i]) for i in np.flatnonzero(alive)]
    return sorted(found, key=lambda rows: (-len(rows), rows[0]))


def likeness(vectors: Vectors, label: NDArray[np.int64]) -> float:
    """The cosine that tells pairs of one class from pairs of two classes best, by support photos (S, D), (S,)."""
    unit = _unit(vectors)
    cosine = unit @ unit.T
    above = np.triu(np.ones_like(cosine, dtype=bool), k=1)
    same = label[:, None] == label[None, :]
    within, between = np.sort(cosine[above & same]), np.sort(cosine[above & ~same])
    if not len(within):  # things alike should be more alike than any two classes are
        return float(between[-1]) if len(between) else WITHOUT_PAIRS
    if not len(between):
        return float(np.quantile(within, 0.25))
    levels = np.concatenate([within, between])
    kept = 1 - np.searchsorted(within, levels) / len(within)
    mixed = 1 - np.searchsorted(between, levels) / len(between)
    return float(levels[int(np.argmax(kept - mixed))])


def group_id(members: Iterable[str]) -> str:
    """Of pictures: the same in any order, today and tomorrow."""
    return hashlib.sha256(" ".join(sorted(members)).encode()).hexdigest()[:16]


def _unit(vectors: Vectors) -> Vectors:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _group_json(members: list[QueryAnswer], now: Snapshot) -> dict[str, Any]:
    """``suggestion`` is the class nearest to most of them."""
    nearest = [each.answer.nearest for each in members]
    return {
        "id": group_id(each.query.id for each in members),
        "n": len(members),
        "suggestion": max(nearest, key=nearest.count),
        "items": [_item_json(each, now) for each in members],
    }


def _item_json(each: QueryAnswer, now: Snapshot) -> dict[str, Any]:
    shown = {name: getattr(each.answer, name) for name in Item.model_fields if hasattr(each.answer, name)}
    return {**shown, **each.query.to_json(), "enrolled": each.query.id in now.photos}
