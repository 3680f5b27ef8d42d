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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import NamedTuple, TypeAlias

import PIL
from PIL import features

from glocal.data.cache import cache_dir
from glocal.data.sources import ImageSource
from glocal_runtime.files import write_text
from glocal_runtime.images import Pixels, UnusableImage

Progress: TypeAlias = Callable[[int, int], None]  # (done, total)
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


def digest_all(
    source: ImageSource, *, remember: Path | None = None, workers: int = 2, progress: Progress | None = None
) -> list[bytes | BadImage]:
    """Digest, or what is wrong, of every picture; those below ``remember`` are decoded only when they changed."""
    remembered = load_digests(remember) if remember is not None else {}
    stamps = [source.stamp(i) for i in range(len(source))] if remember is not None else [None] * len(source)
    started, total = time.time_ns(), len(source)
    outcomes: dict[int, bytes | BadImage] = {
        i: remembered[stamp] for i, stamp in enumerate(stamps) if stamp is not None and stamp in remembered
    }
    to_decode = [i for i in range(total) if i not in outcomes]
    if progress is not None and outcomes:
        progress(len(outcomes), total)
    pool = ThreadPoolExecutor(max(1, workers))
    try:
        for i, outcome in zip(to_decode, pool.map(partial(_digest, source), to_decode), strict=True):
            outcomes[i] = outcome
            if progress is not None:
                progress(len(outcomes), total)
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C must not wait for sixty thousand pictures

    fresh: dict[str, bytes] = {}
    for i, stamp in enumerate(stamps):
        digest = outcomes[i]
        if stamp is not None and isinstance(digest, bytes) and started - _changed_at(stamp) > _SETTLED_AFTER:
            fresh[stamp] = digest
    if remember is not None and fresh != remembered:
        store_digests(remember, fresh)
    return [outcomes[i] for i in range(total)]


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


def load_digests(root: Path) -> dict[str, bytes]:
    """stamp -> content digest, as far as a readable cache of this decoder exists."""
    try:
        stored = json.loads(digest_cache_file(root).read_text("utf-8"))
        if stored["decoder"] != _DECODER or stored["root"] != str(root.absolute()):
            return {}
        digests = {stamp: bytes.fromhex(text) for stamp, text in stored["digests"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    return digests if all(len(digest) == 32 for digest in digests.values()) else {}


def store_digests(root: Path, digests: dict[str, bytes]) -> None:
    """Replace the cache of ``root`` in one step; silently without effect where nothing can be written."""
    content = {
        "decoder": _DECODER,
        "root": str(root.absolute()),
        "digests": {stamp: digest.hex() for stamp, digest in digests.items()},
    }
    with contextlib.suppress(OSError):
        write_text(digest_cache_file(root), json.dumps(content))
