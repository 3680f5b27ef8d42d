"""The folder where work is kept that would only have to be done again: digests of pictures, feature banks, glyphs.

It may be deleted at any time.
"""

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
    """Bytes on disk of every bank in the cache (holes not counted)."""
    home = folder or cache_dir() / "banks"
    return {
        bank.name: sum(_bytes_on_disk(file.stat()) for file in bank.iterdir())
        for bank in sorted(home.glob("*"))
        if bank.is_dir()
    }


def _bytes_on_disk(found: os.stat_result) -> int:
    blocks: int | None = getattr(found, "st_blocks", None)  # Windows does not say
    return found.st_size if blocks is None else blocks * 512


def clear_banks(folder: Path | None = None) -> None:
    shutil.rmtree(folder or cache_dir() / "banks", ignore_errors=True)
