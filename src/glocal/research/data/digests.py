"""The identity of an image: the hash of its pixels.

Digests are kept in the cache, so that a folder opens fast the second time.  An image whose file changed, or that has
no kept digest, is decoded again.
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

from glocal.common.cache import cache_dir
from glocal.common.files import write_text
from glocal.recognizer.photos.folders import ImageSource
from glocal.recognizer.photos.images import Pixels, UnusableImage
from glocal.recognizer.photos.sources import made_ahead

THREADS, AT_ONCE = 2, 256
TRUSTED_AFTER = 2_000_000_000  # ns: a younger file may change again without a change of its times


class BadImage(NamedTuple):
    """An image that cannot be used."""

    where: str
    reason: str


def content_digest(image: Pixels) -> bytes:
    """sha256 of shape and RGB pixels (H, W, 3)."""
    height, width, _ = image.shape
    digest = hashlib.sha256(f"{height}x{width}:".encode())
    digest.update(image.data)
    return digest.digest()


def digest_all(source: ImageSource, root: Path | None = None) -> list[bytes | BadImage]:
    """The digest of every image, or the reason why it has none; digests of images below ``root`` are kept."""
    if root is None:
        return _decode_all(source, range(len(source)))
    kept, started = _load(root), time.time_ns()
    stamps = [source.stamp(i) for i in range(len(source))]
    missing = [i for i, stamp in enumerate(stamps) if stamp is None or stamp not in kept]
    decoded = dict(zip(missing, _decode_all(source, missing), strict=True))
    digests = [decoded[i] if i in decoded else kept[stamp or ""] for i, stamp in enumerate(stamps)]
    fresh = {
        stamp: digest
        for stamp, digest in zip(stamps, digests, strict=True)
        if stamp is not None and isinstance(digest, bytes) and started - _changed_at(stamp) > TRUSTED_AFTER
    }
    if fresh != kept:
        _store(root, fresh)
    return digests


def digest_file(root: Path) -> Path:
    """The file with the digests of all images below ``root``, a folder, CSV or zip."""
    return cache_dir() / "digests" / f"{hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:32]}.json"


def _decode_all(source: ImageSource, wanted: Iterable[int]) -> list[bytes | BadImage]:
    batches = made_ahead(partial(_digest, source), wanted, AT_ONCE, workers=THREADS)
    return [digest for batch in batches for digest in batch]


def _digest(source: ImageSource, i: int) -> bytes | BadImage:
    try:
        return content_digest(source.read(i))
    except UnusableImage as bad:
        return BadImage(bad.where, bad.reason)


def _changed_at(stamp: str) -> int:
    """The later of the two times at the end of a stamp, in ns: a program can set one of them back, not both."""
    return max(map(int, stamp.split("|")[-2:]))


def _decoder() -> str:
    """The programs that decode: others may give other pixels.  Raise the 1 when images.py changes them."""
    heif = ""
    with contextlib.suppress(metadata.PackageNotFoundError):
        heif = f", pillow_heif {metadata.version('pillow_heif')}"
    return f"1, Pillow {PIL.__version__}, libjpeg {features.version('libjpeg_turbo')}{heif}"


_DECODER = _decoder()


def _load(root: Path) -> dict[str, bytes]:
    """Stamp -> digest; empty where nothing usable is kept."""
    try:
        stored = json.loads(digest_file(root).read_text("utf-8"))
        if stored["decoder"] != _DECODER:
            return {}
        digests = {stamp: bytes.fromhex(text) for stamp, text in stored["digests"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    return digests if all(len(digest) == 32 for digest in digests.values()) else {}


def _store(root: Path, digests: dict[str, bytes]) -> None:
    """Keep digests if the cache can be written."""
    content = {"decoder": _DECODER, "digests": {stamp: digest.hex() for stamp, digest in digests.items()}}
    with contextlib.suppress(OSError):
        write_text(digest_file(root), json.dumps(content))
