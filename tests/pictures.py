"""A handful of pictures in two classes, and ways to write them down."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glocal.research.data import dataset as digests

Tree = dict[str, np.ndarray]  # relative path -> pixels


def make_tree() -> Tree:
    rng = np.random.default_rng(1)
    names = ["cat/1.png", "cat/2.png", "cat/old/3.png", "dog/1.png", "dog/2.PNG"]
    return {name: rng.integers(0, 256, (8, 9, 3), dtype=np.uint8) for name in names}


def write_tree(root: Path, tree: Tree) -> Path:
    for name, pixels in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / name)
        os.utime(root / name, (1_000_000_000, 1_000_000_000))  # as unpacking does
    return root


def write_classes(folder: Path, *names: str, seed: int = 0, per_class: int = 2, side: int = 8) -> Path:
    """Class folders of noise, added to those that are there."""
    rng = np.random.default_rng(seed)
    for name in names:
        (folder / name).mkdir(parents=True)
        for i in range(per_class):
            Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(folder / name / f"{i}.png")
    return folder


def write_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def png_claiming(width: int, height: int) -> bytes:
    """A PNG whose header promises more than is there."""
    black = png(np.zeros((8, 8, 3), np.uint8))
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return black[:8] + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head)) + black[33:]


def count_decodes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A list that grows by one digest for every picture decoded from now on."""
    seen: list[bytes] = []
    original = digests.content_digest
    monkeypatch.setattr(digests, "content_digest", lambda image: seen.append(original(image)) or seen[-1])
    return seen
