"""Forms with pictures, as the routes want them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import Request

from glocal.recognizer.eye import Source
from glocal.serve.multipart import read_parts
from glocal.serve.problems import Problem
from glocal.serve.settings import Settings
from glocal_runtime.images import decode

LONGEST_NAME = 120  # characters of a file name that are kept


@dataclass(frozen=True)
class Form:
    fields: dict[str, str]
    images: list[Source]


async def read_form(request: Request, settings: Settings, *, fields: Sequence[str] = ()) -> Form:
    """The pictures in ``images`` and the text in ``fields``: all of these and nothing else."""
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data"):
        raise Problem(415, "invalid", "pictures come as multipart/form-data with one part `images` for each of them")
    limits = settings.limits
    parts = await read_parts(kind, request.stream(), files=settings.images, file_bytes=limits.file_bytes)
    texts: dict[str, str] = {}
    images: list[Source] = []
    for part in parts:
        if part.filename is not None and part.name == "images":
            name = clean_name(part.filename)
            read = partial(decode, bytes(part.data), name=name, max_pixels=limits.pixels)
            images.append(Source(name, read))
        elif part.filename is None and part.name in fields and part.name not in texts:
            texts[part.name] = part.text
        else:
            raise Problem(
                422, "invalid", f"the form has a part {part.name[:40]!r} that is not expected, or two of them"
            )
    if absent := [name for name in fields if name not in texts]:
        raise Problem(422, "invalid", f"the form lacks the part {absent[0]!r}")
    if not images:
        raise Problem(422, "invalid", "the form lacks a part `images`: send at least one picture")
    return Form(texts, images)


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


def clean_name(name: str) -> str:
    """What a stranger called a file, as one short printable line without folders."""
    last = re.split(r"[/\\]", name)[-1]
    shown = "".join(letter for letter in last if unicodedata.category(letter)[0] != "C" or letter == "\u200d")
    return shown.strip()[:LONGEST_NAME] or "picture"
