"""The versions, threads and device that a report records beside its numbers."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glocal import __version__


def environment(device: torch.device | str | None = None, threads: int | None = None) -> dict[str, Any]:
    """Without names of machines and paths.  ``threads``: those that a recipe names."""
    where = torch.device(device or "cpu")
    return {
        "glocal": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "threads": threads or torch.get_num_threads(),
        "device": torch.cuda.get_device_name(where) if where.type == "cuda" else where.type,
    }


def in_words(made: Mapping[str, Any]) -> str:
    """An environment as a line of a report."""
    source = f"glocal {made['glocal']}" + (
        f", commit {made['commit'][:12]}{made['commit'][40:]}" if made["commit"] else ""
    )
    threads = f"{made['threads']} thread{'s' if made['threads'] != 1 else ''}"
    return f"{source}, torch {made['torch']}, {threads} on {made['device']}"


@cache
def commit() -> str | None:
    """Of the source that runs, with a + when files in it were changed; None for an installed package."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *words], capture_output=True, text=True, check=True, timeout=20
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", "../") else "")
    except (OSError, subprocess.SubprocessError):
        return None
