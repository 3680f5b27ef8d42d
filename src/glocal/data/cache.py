"""Digests of pictures already decoded once, so that opening the same folder again is quick.

A cache may be deleted, damaged or unwritable at any time: then pictures are decoded again, nothing else happens.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from importlib import metadata
from pathlib import Path

import PIL
from PIL import features

from glocal_runtime.files import write_text


def _decoder() -> str:
    """Another decoder may give other pixels; raise the 1 when images.py changes them."""
    heif = ""
    with contextlib.suppress(metadata.PackageNotFoundError):
        heif = f", pillow_heif {metadata.version('pillow_heif')}"
    return f"1, Pillow {PIL.__version__}, libjpeg {features.version('libjpeg_turbo')}{heif}"


_DECODER = _decoder()


def cache_dir() -> Path:
    """``GLOCAL_CACHE``, or ``glocal`` in the user's cache folder; not created here."""
    if chosen := os.environ.get("GLOCAL_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glocal"


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
