"""Teach: classes and their photos, and the way back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from glocal.serve.forms import form_schema, read_form
from glocal.serve.problems import Json, missing
from glocal.serve.routes_predict import FOR_EVER
from glocal.serve.schemas import ChangedBody, ClassCount, Digest, Rename, State
from glocal.serve.server import IfMatch, Server

ClassName = Annotated[str, Path(min_length=1, max_length=200)]


def routes(server: Server) -> APIRouter:
    router = APIRouter(tags=["teach"])
    workspace, limits = server.workspace, server.settings.limits

    @router.get("/state", response_model=State)
    async def state() -> Response:
        """All that the page shows."""
        now = workspace.snapshot
        shown = await run_in_threadpool(lambda: now.state)
        allowed = {
            "bytes": limits.file_bytes,
            "request_bytes": limits.request_bytes,
            "pixels": limits.pixels,
            "images": server.settings.images,
        }
        return Json({**shown, "limits": allowed}, headers={"ETag": f'"{now.version}"'})

    @router.get("/classes", response_model=list[ClassCount])
    async def classes() -> Response:
        found = workspace.snapshot.class_photos
        return Json([{"name": name, "n_photos": len(photos)} for name, photos in found.items()])

    @router.post("/classes", response_model=ChangedBody, openapi_extra=form_schema(["name"]))
    async def add_class(request: Request, if_match: IfMatch = None) -> Response:
        """A new class from its photos."""
        form = await read_form(request, server.settings, fields=["name"])
        return await server.change(workspace.add_class, form.fields["name"], form.images, expected=if_match)

    @router.patch("/classes/{name}", response_model=ChangedBody)
    async def rename_class(name: ClassName, body: Rename, if_match: IfMatch = None) -> Response:
        return await server.change(workspace.rename_class, name, body.name, expected=if_match)

    @router.delete("/classes/{name}", response_model=ChangedBody)
    async def remove_class(name: ClassName, if_match: IfMatch = None) -> Response:
        return await server.change(workspace.remove_class, name, expected=if_match)

    @router.post("/photos", response_model=ChangedBody, openapi_extra=form_schema(["class"]))
    async def add_photos(request: Request, if_match: IfMatch = None) -> Response:
        """Photos for a class that is there."""
        form = await read_form(request, server.settings, fields=["class"])
        return await server.change(workspace.add_photos, form.fields["class"], form.images, expected=if_match)

    @router.delete("/photos/{id}", response_model=ChangedBody)
    async def remove_photo(id: Digest, if_match: IfMatch = None) -> Response:
        return await server.change(workspace.remove_photo, id, expected=if_match)

    @router.get("/photos/{id}/thumbnail", response_class=Response)
    async def photo_thumbnail(id: Digest) -> Response:
        photo = workspace.snapshot.photos.get(id)
        if photo is None:
            raise missing(f"photo {id[:16]!r}")
        return Response(photo.thumbnail, media_type="image/jpeg", headers={"Cache-Control": FOR_EVER})

    @router.post("/undo", response_model=ChangedBody)
    async def undo(if_match: IfMatch = None) -> Response:
        """Take back the last change."""
        return await server.change(workspace.undo, expected=if_match)

    @router.post("/redo", response_model=ChangedBody)
    async def redo(if_match: IfMatch = None) -> Response:
        """Do again what was taken back."""
        return await server.change(workspace.redo, expected=if_match)

    return router
