"""Small photos that take a decoder long."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image

SCAN = b"\xff\xda"


def progressive(image: Image.Image) -> tuple[bytes, list[bytes]]:
    """The head of a progressive JPEG and its scans, each with the tables before it; with an end they are a photo."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", progressive=True)
    data = buffer.getvalue()[:-2]
    starts = [data.index(b"\xff\xc4", data.index(b"\xff\xc2"))]  # Huffman tables stand before every scan
    while (scan := data.find(SCAN, starts[-1])) >= 0:
        table, following = data.find(b"\xff\xc4", scan), data.find(SCAN, scan + 2)
        if following < 0:
            break
        starts.append(min(each for each in (table, following) if each >= 0))
    ends = [*starts[1:], len(data)]
    return data[: starts[0]], [data[start:end] for start, end in zip(starts, ends, strict=True)]


def photo_of(head: bytes, scans: Sequence[bytes]) -> bytes:
    return head + b"".join(scans) + b"\xff\xd9"


def repeated_scan(side: int, times: int) -> bytes:
    """A photo whose last scan comes again and again: few bytes, and every time all pixels are gone through."""
    head, scans = progressive(Image.new("L", (side, side)))
    return photo_of(head, [*scans, *[scans[-1]] * times])
