"""Forms with pictures, as the routes want them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

from fastapi import Request
from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from glocal.recognizer.photos.images import decode, pixels_of
from glocal.recognizer.photos.sources import Source
from glocal.serve.problems import Problem
from glocal.serve.security import Settings

FIELDS, FIELD_BYTES = 8, 4096
LONGEST_NAME, LONGEST_CLASS = 120, 200  # characters of a file name and of its folder that are kept


async def read_form(
    request: Request, settings: Settings, *, fields: Sequence[str] = (), folders: bool = False
) -> tuple[list[Source], dict[str, str]]:
    """The pictures in ``images`` and the text in ``fields``: all of these and nothing else.

    With ``folders``, the name of a picture keeps the folder that it is in: ``bolt/1.jpg``.
    """
    limits = settings.limits
    parts = await _Reader(request, settings).parse()
    texts: dict[str, str] = {}
    images: list[Source] = []
    try:
        for key, part in parts.multi_items():
            if isinstance(part, UploadFile) and key == "images":
                name, data = (with_folder if folders else clean_name)(part.filename or ""), part.file.read()
                pixels = await run_in_threadpool(pixels_of, data)
                images.append(Source(name, partial(decode, data, name=name, max_pixels=limits.pixels), pixels))
            elif isinstance(part, str) and key in fields and key not in texts:
                texts[key] = part
            else:
                raise Problem(422, "invalid", f"the form has a part {key[:40]!r} that is not expected, or two of them")
    finally:
        await parts.close()
    if absent := [name for name in fields if name not in texts]:
        raise Problem(422, "invalid", f"the form lacks the part {absent[0]!r}")
    if not images:
        raise Problem(422, "invalid", "the form lacks a part `images`: send at least one picture")
    if sum(each.pixels for each in images) > limits.request_pixels:
        raise Problem(
            413, "too-large", f"the pictures of a request may have {limits.request_pixels:,} pixels; send fewer at once"
        )
    return images, texts


class _Reader(MultiPartParser):
    """Starlette's reader with what it lacks: nothing goes to a temporary file, a form that was cut short is refused,
    files have a limit too, and the client does not choose the character set."""

    spool_max_size = 0  # never to the disk

    def __init__(self, request: Request, settings: Settings) -> None:
        kind = request.headers.get("content-type", "")
        if not kind.lower().startswith("multipart/form-data"):
            raise Problem(
                415, "invalid", "pictures come as multipart/form-data with one part `images` for each of them"
            )
        boundary = parse_options_header(kind)[1].get(b"boundary", b"").decode("latin-1")
        if not 0 < len(boundary) <= 70:
            raise _unreadable("its Content-Type names no boundary of 1 to 70 letters")
        boundary = boundary.replace("\\", "\\\\").replace('"', '\\"')
        headers = Headers({"content-type": f'multipart/form-data; boundary="{boundary}"'})
        super().__init__(headers, self._whole(request.stream()))
        self._most, self._file_bytes = settings.images, settings.limits.file_bytes
        self._size, self._complete = 0, False

    async def parse(self) -> FormData:
        try:
            return await super().parse()
        except MultiPartException as error:
            raise _unreadable(error.message) from None

    async def _whole(self, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async for chunk in stream:
            yield chunk
        if not self._complete:
            raise _unreadable("its last boundary is missing: it was cut short")

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        is_file = self._current_part.file is not None
        most, what = (self._most, "files") if is_file else (FIELDS, "fields")
        if sum(isinstance(each, UploadFile) == is_file for _, each in self.items) >= most:
            raise Problem(413, "too-large", f"a form may have at most {most} {what}")
        self._size = 0

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        part = self._current_part
        most = FIELD_BYTES if part.file is None else self._file_bytes
        self._size += end - start
        if self._size > most:
            raise Problem(
                413, "too-large", f"the part {part.field_name[:40]!r} of a form may have at most {most:,} bytes"
            )
        super().on_part_data(data, start, end)

    def on_end(self) -> None:
        self._complete = True


def form_schema(fields: Sequence[str] = ()) -> dict[str, Any]:
    """The same for OpenAPI."""
    properties: dict[str, Any] = {name: {"type": "string", "minLength": 1, "maxLength": 200} for name in fields}
    properties["images"] = {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1}
    schema = {
        "type": "object",
        "properties": properties,
        "required": [*fields, "images"],
        "additionalProperties": False,
    }
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


def clean_name(name: str, *, longest: int = LONGEST_NAME) -> str:
    """What a stranger called a file, as one short printable line without folders."""
    last = re.split(r"[/\\]", name)[-1]
    shown = "".join(letter for letter in last if unicodedata.category(letter)[0] != "C" or letter == "\u200d")
    return shown.strip()[:longest] or "picture"


def with_folder(name: str) -> str:
    """The same with the last folder before it, which is the name of a class."""
    *_, folder, last = re.split(r"[/\\]", f"/{name}")
    folder = folder.replace("%22", '"')  # as browsers write it in the name of a part
    if not folder.strip():
        raise Problem(422, "invalid", f"{clean_name(last)} is in no folder: name the part `class/{clean_name(last)}`")
    return f"{clean_name(folder, longest=LONGEST_CLASS)}/{clean_name(last)}"


def _unreadable(why: str) -> Problem:
    return Problem(400, "invalid", f"the form cannot be read: {why}")
