"""What a picture is, whatever it is called and however it is packed: the hash of its pixels.

Digests are kept, so that opening the same folder again is quick.  What keeps them may be deleted, damaged or unwritable
at any time: then pictures are decoded again, nothing else happens.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import PIL
from PIL import features

from glocal.common.files import write_text
from glocal.recognizer.photos.images import Pixels, UnusableImage
from glocal.recognizer.photos.sources import made_ahead
from glocal.research.data.cache import cache_dir
from glocal.research.data.layouts import ImageSource

_THREADS, _AT_ONCE = 2, 256
_SETTLED_AFTER = 2_000_000_000  # ns: a file younger than this may change again within the same clock tick


class BadImage(NamedTuple):
    """A picture that was found but cannot be used."""

    where: str
    reason: str


def content_digest(image: Pixels) -> bytes:
    """sha256 of shape and RGB pixels (H, W, 3)."""
    height, width, _ = image.shape
    digest = hashlib.sha256(f"{height}x{width}:".encode())
    digest.update(image.data)
    return digest.digest()


def digest_all(source: ImageSource, root: Path | None = None) -> list[bytes | BadImage]:
    """Digest, or what is wrong, of every picture; those below ``root`` are decoded only when they changed."""
    if root is None:
        return _decode_all(source, range(len(source)))
    kept, started = _load_digests(root), time.time_ns()
    stamps = [source.stamp(i) for i in range(len(source))]
    outcomes: list[bytes | BadImage | None] = [None if stamp is None else kept.get(stamp) for stamp in stamps]
    missing = [i for i, outcome in enumerate(outcomes) if outcome is None]
    for i, found in zip(missing, _decode_all(source, missing), strict=True):
        outcomes[i] = found
    fresh = {
        stamp: outcome
        for stamp, outcome in zip(stamps, outcomes, strict=True)
        if stamp is not None and isinstance(outcome, bytes) and started - _changed_at(stamp) > _SETTLED_AFTER
    }
    if fresh != kept:
        _store_digests(root, fresh)
    return [outcome for outcome in outcomes if outcome is not None]


def _decode_all(source: ImageSource, wanted: Iterable[int]) -> list[bytes | BadImage]:
    return [
        found for some in made_ahead(partial(_digest, source), wanted, _AT_ONCE, workers=_THREADS) for found in some
    ]


def _digest(source: ImageSource, i: int) -> bytes | BadImage:
    try:
        return content_digest(source.read(i))
    except UnusableImage as bad:
        return BadImage(bad.where, bad.reason)


def _changed_at(stamp: str) -> int:
    """Every stamp ends in the two times of its file, in ns: of the change itself, and the one that can be set."""
    return max(map(int, stamp.split("|")[-2:]))


def _decoder() -> str:
    """Another decoder may give other pixels; raise the 1 when images.py changes them."""
    heif = ""
    with contextlib.suppress(metadata.PackageNotFoundError):
        heif = f", pillow_heif {metadata.version('pillow_heif')}"
    return f"1, Pillow {PIL.__version__}, libjpeg {features.version('libjpeg_turbo')}{heif}"


_DECODER = _decoder()


def digest_cache_file(root: Path) -> Path:
    """The file that remembers the digests of everything below ``root`` (a folder, CSV or zip)."""
    return cache_dir() / "digests" / f"{hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:32]}.json"


def _load_digests(root: Path) -> dict[str, bytes]:
    """stamp -> content digest, as far as a readable cache of this decoder exists."""
    try:
        stored = json.loads(digest_cache_file(root).read_text("utf-8"))
        if stored["decoder"] != _DECODER or stored["root"] != str(root.absolute()):
            return {}
        digests = {stamp: bytes.fromhex(text) for stamp, text in stored["digests"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    return digests if all(len(digest) == 32 for digest in digests.values()) else {}


def _store_digests(root: Path, digests: dict[str, bytes]) -> None:
    """Replace the cache of ``root`` in one step; silently without effect where nothing can be written."""
    content = {
        "decoder": _DECODER,
        "root": str(root.absolute()),
        "digests": {stamp: digest.hex() for stamp, digest in digests.items()},
    }
    with contextlib.suppress(OSError):
        write_text(digest_cache_file(root), json.dumps(content))
