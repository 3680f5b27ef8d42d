"""A backbone and a data set for the feature bank that count what is asked of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glocal.research.data.dataset import ClassDataset
from glocal.research.types import Preprocess

N = 21


class Doubling:
    """A backbone whose maps can be written down by hand, and which counts: (B, 3, 8, 8) -> (B, 6, 8, 8)."""

    channels = 6

    def __init__(self, weights: str = "w", preprocess: Preprocess | None = None, scale: float = 1.0):
        self.weights, self.scale = weights, scale
        self.preprocess = preprocess or Preprocess(8, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
        self.calls: list[int] = []

    def fingerprint(self) -> str:
        return self.weights

    def __call__(self, images: Tensor) -> Tensor:
        self.calls.append(len(images))
        return torch.cat([images, -2 * images], 1) * self.scale


class CountingDataset(ClassDataset):
    """Notes which images are decoded."""

    read: list[int]

    def image(self, i: int) -> np.ndarray:
        self.read.append(int(i))
        return super().image(i)


def dataset(seed: int = 0, name: str = "toys", size: int = 8, n: int = N) -> CountingDataset:
    images = np.random.default_rng(seed).integers(0, 256, (n, size, size, 3), dtype=np.uint8)
    plain = ClassDataset.from_arrays(images, np.arange(n) % 3, list("abc"), name=name)
    counting = CountingDataset(**vars(plain))
    object.__setattr__(counting, "read", [])
    return counting


def by_hand(data: ClassDataset, i: int) -> np.ndarray:
    picture = ClassDataset.image(data, i).astype(np.float32).transpose(2, 0, 1) / np.float32(255)
    return np.concatenate([picture, -2 * picture])


def folder_of(bank_home: Path) -> Path:
    (only,) = bank_home.iterdir()
    return only
