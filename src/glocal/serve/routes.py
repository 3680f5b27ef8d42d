"""The HTTP API: ask, teach and review; ``decide.py`` has the threshold."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from glocal.common.errors import DataError
from glocal.common.words import counted
from glocal.recognizer import Recognizer
from glocal.recognizer.diagnosis.advice import Finding
from glocal.recognizer.diagnosis.check import judged, trade_off
from glocal.recognizer.photos.sources import Unreadable
from glocal.recognizer.support import Bank, thumbnail
from glocal.serve import example, schemas
from glocal.serve.decide import decide
from glocal.serve.forms import form_schema, read_form
from glocal.serve.groups import group_id, label_next, unknown_groups
from glocal.serve.problems import Json, Problem, missing
from glocal.serve.server import IfMatch, Server
from glocal.serve.snapshot import QueryAnswer, Result, Snapshot, batch_of

T = TypeVar("T")
FOR_EVER = "private, max-age=31536000, immutable"  # addresses with a digest: what is behind one never changes
ClassName = Annotated[str, Path(min_length=1, max_length=200)]
GroupId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


def _ask(server: Server) -> APIRouter:
    router = APIRouter(tags=["ask"])
    workspace, settings, metrics = server.workspace, server.settings, server.metrics

    @router.post("/predict", response_model=schemas.AnswerList, openapi_extra=form_schema(), status_code=200)
    async def predict(request: Request, remember: bool = True) -> Response:
        """Name photos, or call them unknown; a photo that cannot be read is an answer with ``ok: false``."""
        now = await server.now()
        now.enrolled()
        images, _ = await read_form(request, settings)
        results = await while_connected(request, server.answers(now, images))
        for each in results:
            metrics.pictures.labels(_kind(each)).inc()
            if not isinstance(each, Unreadable):
                server.watch(now, each.answer.is_unknown)
        if remember:
            await run_in_threadpool(workspace.remember, now, results)
        return Json({"version": now.version, "answers": [_json(each, remember) for each in results]})

    @router.post("/check", response_model=schemas.CheckBody, openapi_extra=form_schema())
    async def check(request: Request) -> Response:
        """How many labelled photos it gets right; the name of each part says what is on it: ``bolt/1.jpg``.

        A folder that is no class counts as unknown.  Nothing is remembered.
        """
        now = await server.now()
        recognizer = now.enrolled()
        images, _ = await read_form(request, settings, folders=True)
        results = await while_connected(request, server.answers(now, images))
        filed = [each.name.split("/")[0] for each in images]
        answers = [each if isinstance(each, Unreadable) else each.answer for each in results]
        checked = judged(recognizer.classes, filed, answers)
        checked = replace(checked, trade_off=await run_in_threadpool(trade_off, recognizer, checked))
        return Json({"version": now.version, **checked.to_json()})

    @router.get("/queries/{id}/thumbnail", response_class=Response, responses=schemas.binary("image/jpeg"))
    async def query_thumbnail(id: schemas.Digest) -> Response:
        small = await run_in_threadpool(thumbnail, workspace.query(id).picture.pixels)
        return Response(small, media_type="image/jpeg", headers={"Cache-Control": FOR_EVER})

    drawing = asyncio.Semaphore(2)  # an overlay costs as much as an answer

    @router.get("/queries/{id}/overlay", response_class=Response, responses=schemas.binary("image/png"))
    async def query_overlay(id: schemas.Digest) -> Response:
        """A picture of the patches that match those of support photos."""
        now = await server.now()
        now.enrolled()
        query = workspace.query(id)
        async with drawing:
            return Response(await run_in_threadpool(now.overlay, query), media_type="image/png")

    return router


async def while_connected(request: Request, waiting: Coroutine[Any, Any, T]) -> T:
    """What it gives, unless the client hangs up before: then it is cancelled, so that nobody works for nobody."""
    answer = asyncio.ensure_future(waiting)
    gone = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _kind(result: Result) -> str:
    if isinstance(result, Unreadable):
        return "unreadable"
    return "unknown" if result.answer.is_unknown else "known"


def _json(result: Result, remember: bool) -> dict[str, Any]:
    if isinstance(result, Unreadable):
        return {"name": result.path, "ok": False, "error": result.error}
    fields = result.answer.to_json()
    del fields["box"]  # of regions, which nobody asks about here
    return {"name": fields.pop("path"), "ok": True, "id": result.query.id if remember else None, **fields}


def _teach(server: Server) -> APIRouter:
    router = APIRouter(tags=["teach"])
    workspace, limits = server.workspace, server.settings.limits

    @router.get("/state", response_model=schemas.State)
    async def state() -> Response:
        """All that the page shows."""
        now = await server.now()
        shown = await run_in_threadpool(lambda: now.state)
        allowed = {
            "bytes": limits.file_bytes,
            "request_bytes": limits.request_bytes,
            "pixels": limits.pixels,
            "images": server.settings.images,
        }
        more = {"file": workspace.file.name, "limits": allowed, "example": True}
        return Json({**shown, **more}, headers={"ETag": f'"{now.version}"'})

    @router.get("/classes", response_model=list[schemas.ClassCount])
    async def classes() -> Response:
        classes = (await server.now()).class_photos
        return Json([{"name": name, "n_photos": len(photos)} for name, photos in classes.items()])

    @router.post("/classes", response_model=schemas.ChangedBody, openapi_extra=form_schema(["name"]))
    async def add_class(request: Request, if_match: IfMatch = None) -> Response:
        """A new class from its photos."""
        photos, fields = await server.photos(request, "name")
        name = fields["name"]
        return await server.change(
            f"class {name} added",
            lambda recognizer: recognizer.add_class(name, photos, skip_bad=True),
            if_match,
            first={name: photos},
        )

    @router.post("/example", response_model=schemas.ChangedBody)
    async def add_example(if_match: IfMatch = None) -> Response:
        """Teach an empty page a few handwritten digits, to try it with."""
        return await server.change("example taught", _refuse_example, if_match, first=example.taught())

    @router.get("/example/{place}", response_class=Response, responses=schemas.binary("image/png"))
    async def example_picture(place: Annotated[int, Path(ge=0, lt=len(example.ASKED))]) -> Response:
        """A photo to ask the example about."""
        return Response(await run_in_threadpool(example.asked, place), media_type="image/png")

    @router.patch("/classes/{name}", response_model=schemas.ChangedBody)
    async def rename_class(name: ClassName, body: schemas.Rename, if_match: IfMatch = None) -> Response:
        return await server.change(
            f"class {name} renamed to {body.name}",
            lambda recognizer: recognizer.rename_class(_known(name, recognizer), body.name),
            if_match,
        )

    @router.delete("/classes/{name}", response_model=schemas.ChangedBody)
    async def remove_class(name: ClassName, if_match: IfMatch = None) -> Response:
        return await server.change(
            f"class {name} removed", lambda recognizer: recognizer.remove_class(_known(name, recognizer)), if_match
        )

    @router.post("/photos", response_model=schemas.ChangedBody, openapi_extra=form_schema(["class"]))
    async def add_photos(request: Request, if_match: IfMatch = None) -> Response:
        """Photos for a class that is there."""
        photos, fields = await server.photos(request, "class")
        name = fields["class"]
        return await server.change(
            f"{counted(len(photos), 'photo')} added to {name}",
            lambda recognizer: recognizer.add_photos(_known(name, recognizer), photos, skip_bad=True),
            if_match,
        )

    @router.post("/unknowns", response_model=schemas.ChangedBody, openapi_extra=form_schema())
    async def add_unknown(request: Request, if_match: IfMatch = None) -> Response:
        """Known unknowns: photos of other things, which it is to call unknown."""
        photos, _ = await server.photos(request)
        return await server.change(
            f"{counted(len(photos), 'photo')} added to the known unknowns",
            lambda recognizer: recognizer.add_unknown(photos, skip_bad=True),
            if_match,
        )

    @router.delete("/photos/{id}", response_model=schemas.ChangedBody)
    async def remove_photo(id: schemas.Digest, if_match: IfMatch = None) -> Response:
        def remove(recognizer: Recognizer) -> list[Finding]:
            if all(photo.digest != id for photo in recognizer.contents.support.photos):
                raise missing(f"photo {id[:16]!r}")
            return recognizer.remove_photo(id)

        return await server.change("photo removed", remove, if_match)

    @router.get("/photos/{id}/thumbnail", response_class=Response)
    async def photo_thumbnail(id: schemas.Digest) -> Response:
        now = await server.now()
        photo = now.photos.get(id) or now.known_unknowns.get(id)
        if photo is None:
            raise missing(f"photo {id[:16]!r}")
        return Response(photo.thumbnail, media_type="image/jpeg", headers={"Cache-Control": FOR_EVER})

    @router.post("/undo", response_model=schemas.ChangedBody)
    async def undo(if_match: IfMatch = None) -> Response:
        """Take back the last change."""
        return await server.go(-1, if_match)

    @router.post("/redo", response_model=schemas.ChangedBody)
    async def redo(if_match: IfMatch = None) -> Response:
        """Do again what was taken back."""
        return await server.go(+1, if_match)

    return router


def _refuse_example(recognizer: Recognizer) -> list[Finding]:
    raise DataError(
        f"the example is for an empty page, and this one has {len(recognizer.classes)} classes", code="not-empty"
    )


def _known(name: str, recognizer: Recognizer) -> str:
    if name not in recognizer.classes:
        raise missing(f"class {name[:80]!r}")
    return name


def _review(server: Server) -> APIRouter:
    router = APIRouter(prefix="/review", tags=["review"])
    workspace = server.workspace

    def bank(ids: list[str]) -> Bank:
        return batch_of([workspace.query(id_) for id_ in dict.fromkeys(ids)]).bank()

    async def teach(name: str, ids: list[str], if_match: str | None) -> Response:
        label = f"{counted(len(set(ids)), 'photo')} added to {name}"
        return await server.change(label, lambda recognizer: recognizer.add_bank(name, bank(ids)), if_match)

    @router.get("", response_model=schemas.Review)
    async def review() -> Response:
        """Groups of unknown photos, photos to label next, and all recent ones, as the current version answers."""
        now = await server.now()

        def shown() -> dict[str, Any]:
            recent = workspace.recent(now)
            return {
                "version": now.version,
                "drift": server.drift,
                "groups": [_group_json(members, now) for members in unknown_groups(recent, now)],
                "next": [_item_json(each, now) for each in label_next(recent, now)],
                "recent": [_item_json(each, now) for each in recent],
            }

        return Json(await run_in_threadpool(shown))

    @router.post("/groups/{id}", response_model=schemas.ChangedBody)
    async def name_group(id: GroupId, body: schemas.NameGroup, if_match: IfMatch = None) -> Response:
        """Enroll the photos of a group, or those named in ``items``, as a class, a new one or one that is there."""
        items = body.items
        if items is None:
            now = await server.now()
            groups = await run_in_threadpool(lambda: unknown_groups(workspace.recent(now), now))
            ids = ([each.query.id for each in members] for members in groups)
            items = next((some for some in ids if group_id(some) == id), None)
            if items is None:
                raise Problem(
                    409, "stale", "there is no such group any more; read the review again", version=now.version
                )
        return await teach(body.name, items, if_match)

    @router.post("/queries/{id}", response_model=schemas.ChangedBody)
    async def correct(id: schemas.Digest, body: schemas.Correct, if_match: IfMatch = None) -> Response:
        """Add a photo to the class that it shows."""
        return await teach(body.class_, [id], if_match)

    @router.post("/unknowns", response_model=schemas.ChangedBody)
    async def keep_unknown(body: schemas.Items, if_match: IfMatch = None) -> Response:
        """Keep photos of other things as known unknowns."""
        return await server.change(
            f"{counted(len(set(body.items)), 'photo')} added to the known unknowns",
            lambda recognizer: recognizer.add_unknown_bank(bank(body.items)),
            if_match,
        )

    @router.delete("/queries/{id}", status_code=204)
    async def forget(id: schemas.Digest) -> Response:
        """Forget a photo that was asked about."""
        if not await run_in_threadpool(workspace.queries.forget, id):
            raise missing(f"recent photo {id[:16]!r}")
        return Response(status_code=204)

    return router


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
    shown = {name: getattr(each.answer, name) for name in schemas.Item.model_fields if hasattr(each.answer, name)}
    id_ = each.query.id
    taught = {"enrolled": id_ in now.photos, "known_unknown": id_ in now.known_unknowns}
    return {**shown, **each.query.to_json(), **taught}


ROUTERS = (_ask, _teach, decide, _review)
