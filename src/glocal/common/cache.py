"""The cache folder: digests of pictures, feature banks, drawn glyphs.  A user may delete it at any time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def cache_dir() -> Path:
    """``GLOCAL_CACHE``, or ``glocal`` in the user's cache folder; not created here."""
    if chosen := os.environ.get("GLOCAL_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glocal"


def bank_sizes(folder: Path | None = None) -> dict[str, int]:
    """Bytes on disk of every feature bank in the cache; holes in a file do not count."""
    home = folder or cache_dir() / "banks"
    return {
        bank.name: sum(_bytes_on_disk(file.stat()) for file in bank.iterdir())
        for bank in sorted(home.glob("*"))
        if bank.is_dir()
    }


def _bytes_on_disk(status: os.stat_result) -> int:
    blocks: int | None = getattr(status, "st_blocks", None)  # Windows has none
    return status.st_size if blocks is None else blocks * 512


def clear_banks(folder: Path | None = None) -> None:
    shutil.rmtree(folder or cache_dir() / "banks", ignore_errors=True)
