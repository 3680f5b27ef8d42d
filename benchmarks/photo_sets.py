"""Photos for benchmarks: those of a folder, or noise, in classes of five."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

SHOTS = 5


def photos(data: Path | None, scratch: Path, n: int) -> list[Path]:
    """The first n of ``data``/<class>/*.jpg; noise as PNG where there is no such folder."""
    if data is not None and data.is_dir():
        return sorted(data.glob("*/*.jpg"))[:n]
    rng = np.random.default_rng(0)
    paths = [scratch / f"{i}.png" for i in range(n)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (240, 300, 3), dtype=np.uint8)).save(path)
    return paths


def groups(paths: list[Path]) -> Iterator[list[Path]]:
    for start in range(0, len(paths) - SHOTS + 1, SHOTS):
        yield paths[start : start + SHOTS]
