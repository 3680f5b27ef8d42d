"""The parts of a form, in memory: nothing of an upload is ever written to a temporary file.

Starlette's own reader spools files to the disk, takes a form that was cut short for a whole one, and lets the client
choose the alphabet; this one does not.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass, field

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from glocal.serve.problems import Problem

FIELD_BYTES = 4096
FIELDS = 8


@dataclass
class Part:
    name: str = ""
    filename: str | None = None  # None for a field
    data: bytearray = field(default_factory=bytearray)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


async def read_parts(content_type: str, stream: AsyncIterable[bytes], *, files: int, file_bytes: int) -> list[Part]:
    """All parts in order, or a problem: too many files, too large ones, not a whole form."""
    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    if not 0 < len(boundary) <= 70:
        raise _unreadable("its Content-Type names no boundary of 1 to 70 letters")
    reader = _Reader(files, file_bytes)
    parser = MultipartParser(boundary, reader.callbacks)  # type: ignore[arg-type]
    try:
        async for chunk in stream:
            parser.write(chunk)
        parser.finalize()
    except FormParserError as error:
        raise _unreadable(str(error)) from None
    if not reader.complete:
        raise _unreadable("its last boundary is missing: it was cut short")
    return reader.parts


class _Reader:
    """What the parser calls."""

    def __init__(self, files: int, file_bytes: int) -> None:
        self._files, self._file_bytes = files, file_bytes
        self.parts: list[Part] = []
        self.complete = False
        self._part = Part()
        self._header, self._value, self._disposition = b"", b"", b""
        names = ("part_begin", "part_data", "part_end", "header_field", "header_value", "header_end")
        self.callbacks = {f"on_{name}": getattr(self, name) for name in (*names, "headers_finished", "end")}

    def part_begin(self) -> None:
        self._part, self._disposition = Part(), b""

    def header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def headers_finished(self) -> None:
        options = parse_options_header(self._disposition)[1]
        if b"name" not in options:
            raise _unreadable("one of its parts has no name")
        self._part.name = options[b"name"].decode("utf-8", "replace")
        if b"filename" in options:
            self._part.filename = options[b"filename"].decode("utf-8", "replace")
        is_file = self._part.filename is not None
        most, what = (self._files, "files") if is_file else (FIELDS, "fields")
        if sum((each.filename is not None) == is_file for each in self.parts) >= most:
            raise Problem(413, "too-large", f"a form may have at most {most} {what}")

    def part_data(self, data: bytes, start: int, end: int) -> None:
        part = self._part
        most = FIELD_BYTES if part.filename is None else self._file_bytes
        if len(part.data) + end - start > most:
            raise Problem(413, "too-large", f"the part {part.name[:40]!r} of a form may have at most {most:,} bytes")
        part.data += data[start:end]

    def part_end(self) -> None:
        self.parts.append(self._part)

    def end(self) -> None:
        self.complete = True


def _unreadable(why: str) -> Problem:
    return Problem(400, "invalid", f"the form cannot be read: {why}")
