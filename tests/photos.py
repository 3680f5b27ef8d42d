"""Handwritten digits as somebody's photos: folders by class, and small recognizers of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from converted import model_file
from glocal.recognizer import Recognizer
from glocal.research.data.embedded import render

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@cache
def digits() -> dict[str, np.ndarray]:
    """Word -> (n, 32, 32, 3), shuffled: they come ordered by who wrote them."""
    images, labels, _ = render("test")
    order = np.random.default_rng(0).permutation(len(labels))
    return {word: images[order][labels[order] == i] for i, word in enumerate(WORDS)}


def some(word: str, start: int, stop: int) -> list[np.ndarray]:
    return list(digits()[word][start:stop])


def write(folder: Path, word: str, start: int, stop: int, *, prefix: str = "") -> list[Path]:
    """Digits ``start`` to ``stop`` of that word as PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{prefix}{i:03d}.png" for i in range(start, stop)]
    for path, pixels in zip(paths, some(word, start, stop), strict=True):
        Image.fromarray(pixels).save(path)
    return paths


def write_classes(root: Path, words: Sequence[str], start: int, stop: int) -> Path:
    for word in words:
        write(root / word, word, start, stop)
    return root


@cache
def _enrolled(model: Path | str, shots: tuple[tuple[str, int], ...]) -> Recognizer:
    return Recognizer.enroll({word: some(word, 0, n) for word, n in shots}, model=model, device="cpu")


def recognizer(shots: Mapping[str, int] | None = None, *, model: Path | str | None = None) -> Recognizer:
    """Enrolled with that many photos of each; a copy of its own, changes do not reach the next caller."""
    wanted = shots or {"zero": 5, "one": 5, "two": 5}
    return copy.copy(_enrolled(model or model_file(), tuple(wanted.items())))
