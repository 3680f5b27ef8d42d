"""Forms with photos, as the routes want them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from fastapi import Request
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from glocal.serve.decoder import Upload
from glocal.serve.problems import Problem
from glocal.serve.security import Settings

FIELDS, FIELD_BYTES = 8, 4096
LONGEST_NAME, LONGEST_CLASS = 120, 200  # characters of a file name and of its folder that are kept


class _Parser(MultiPartParser):
    """Starlette's, which keeps what came of a form that was cut short, and writes large photos to temporary files."""

    spool_max_size = 0
    complete = False

    def on_end(self) -> None:
        self.complete = True

    async def whole(self, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async for chunk in stream:
            yield chunk
        if not self.complete:
            raise MultiPartException("it was cut short, its last boundary is missing")


async def read_form(
    request: Request, settings: Settings, *, fields: Sequence[str] = (), folders: bool = False
) -> tuple[list[Upload], dict[str, str]]:
    """The photos in ``images`` and the text in ``fields``: all of these and nothing else.

    With ``folders``, the name of a photo keeps the folder that it is in: ``bolt/1.jpg``.
    """
    limits = settings.limits
    texts: dict[str, str] = {}
    uploads: list[Upload] = []
    form = await _parse(request, settings.images)
    try:
        for key, part in form.multi_items():
            if isinstance(part, UploadFile) and key == "images":
                name = (with_folder if folders else clean_name)(part.filename or "")
                uploads.append(Upload(name, part.file.read()))
            elif isinstance(part, str) and key in fields and key not in texts:
                texts[key] = part
            else:
                raise Problem(422, "invalid", f"the form has a part {key[:40]!r} that is not expected, or two of them")
    finally:
        await form.close()
    if missing := [name for name in fields if name not in texts]:
        raise Problem(422, "invalid", f"the form lacks the part {missing[0]!r}")
    if not uploads:
        raise Problem(422, "invalid", "the form lacks a part `images`: send at least one photo")
    if any(len(each.data) > limits.file_bytes for each in uploads):
        raise Problem(413, "too-large", f"a photo may have at most {limits.file_bytes:,} bytes")
    return uploads, texts


async def _parse(request: Request, most: int) -> FormData:
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Problem(415, "invalid", "photos come as multipart/form-data with one part `images` for each of them")
    try:
        parser = _Parser(
            request.headers, request.stream(), max_files=most, max_fields=FIELDS, max_part_size=FIELD_BYTES
        )
        parser.stream = parser.whole(parser.stream)
        return await parser.parse()
    except (MultiPartException, UnicodeError) as error:
        raise Problem(400, "invalid", f"the form cannot be read: {error}") from None


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
    """The name of an uploaded file as one short printable line without folders."""
    last = re.split(r"[/\\]", name)[-1]
    shown = "".join(letter for letter in last if unicodedata.category(letter)[0] != "C" or letter == "\u200d")
    return shown.strip()[:longest] or "photo"


def with_folder(name: str) -> str:
    """The same with the last folder before it, which is the name of a class."""
    *_, folder, last = re.split(r"[/\\]", f"/{name}")
    folder = folder.replace("%22", '"')  # as browsers write it in the name of a part
    if not folder.strip():
        raise Problem(422, "invalid", f"{clean_name(last)} is in no folder: name the part `class/{clean_name(last)}`")
    return f"{clean_name(folder, longest=LONGEST_CLASS)}/{clean_name(last)}"
