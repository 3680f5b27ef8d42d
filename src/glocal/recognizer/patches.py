"""Which patches of a picture match a class, for methods that keep local views.

A patch is one pixel of the local map.  It matches a class when it is more like its best patch of the class's mean map
than 9 of 10 patches of the other classes' photos are; the cosine from which on that holds is the ``level``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from glocal.types import Views

FOREIGN = 0.9  # share of the patches of other classes that a matching patch must surpass
SAMPLE_PHOTOS, SAMPLE_CLASSES = 32, 8  # what the level is measured on: beyond that it hardly moves


@dataclass(frozen=True)
class ClassMaps:
    """The mean local map of each class, and the cosine from which on a patch counts as matching."""

    mean: Tensor  # (N, D', H, W)
    shots: Tensor  # (N,)
    level: float

    @property
    def n_patches(self) -> int:
        return self.mean.shape[2] * self.mean.shape[3]

    def match(self, local: Tensor, of: Tensor) -> Tensor:
        """(Q, P) bool: the patches of each map (Q, D', H, W) that match the class ``of`` (Q,)."""
        return best_cosine(local, self.mean[of]) >= self.level

    def match_without(self, local: Tensor, of: Tensor) -> Tensor:
        """The same for support photos, each against its class without it (two photos or more)."""
        n = self.shots[of].to(local.dtype).view(-1, 1, 1, 1)
        rest = (self.mean[of] * n - local) / (n - 1).clamp_min(1)
        return best_cosine(local, rest) >= self.level


def class_maps(views: Views, label: Tensor) -> ClassMaps | None:
    """None without local maps, and for a single class: there is nothing foreign to tell it from."""
    shots = torch.bincount(label)
    if views.local is None or len(shots) < 2 or views.local.shape[2] * views.local.shape[3] < 2:
        return None
    total = torch.zeros(len(shots), *views.local.shape[1:], dtype=views.local.dtype, device=label.device)
    mean = total.index_add_(0, label, views.local) / shots.view(-1, 1, 1, 1).to(views.local.dtype)
    photos, classes = _spread(len(label), SAMPLE_PHOTOS), _spread(len(shots), SAMPLE_CLASSES)
    sample = views.local[photos]
    foreign = [
        best_cosine(some, mean[c].expand(len(some), -1, -1, -1)).flatten()
        for c in classes.tolist()
        if len(some := sample[label[photos] != c])
    ]
    return ClassMaps(mean, shots, float(torch.cat(foreign).quantile(FOREIGN)))


def best_cosine(local: Tensor, other: Tensor) -> Tensor:
    """Maps (Q, D', H, W) and (Q, D', H', W') -> (Q, P) the largest cosine of each patch with a patch of the other."""
    return cosines(local, other).amax(dim=2)


def cosines(local: Tensor, other: Tensor) -> Tensor:
    """(Q, P, P')."""
    return _unit(local) @ _unit(other).mT


def _unit(maps: Tensor) -> Tensor:
    return F.normalize(maps.flatten(2).mT, dim=-1)  # (Q, P, D')


def _spread(n: int, most: int) -> Tensor:
    """All of 0..n-1, or ``most`` of them in even steps."""
    return torch.linspace(0, n - 1, min(n, most)).round().long()
