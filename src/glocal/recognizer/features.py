"""What is kept of a photo, as arrays: a vector, and from encoders that look at patches a map of local vectors.

A patch is one pixel of the local map.  It matches a class when its cosine with the best patch of the class's mean map
reaches the ``level``.  Of the patches of other classes' photos 9 of 10 stay below the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from glocal.common.errors import DataError

Array = npt.NDArray[Any]
Labels = npt.NDArray[np.int64]
UNKNOWN = -1  # the label of everything whose class was not enrolled
LARGEST_HALF = 6e4  # a local view with a larger number is kept in float32
FOREIGN = 0.9  # share of the patches of other classes that a matching patch must surpass
SAMPLE_PHOTOS, SAMPLE_CLASSES = 32, 8  # what the level is measured on: beyond that it hardly moves
AT_ONCE = 256  # classes whose photos are in full precision together


@dataclass(frozen=True)
class Features:
    """B photos, row by row.

    The vectors of an encoder's members lie side by side; each member that looks at patches has a map of its own.
    """

    vec: Array  # (B, D)
    local: tuple[Array, ...] = ()  # (B, C, h, w) each

    def __len__(self) -> int:
        return len(self.vec)

    @property
    def map(self) -> Array | None:
        """That of the last member, which sees the most pixels."""
        return self.local[-1] if self.local else None

    def rows(self, pick: slice | Array | list[int]) -> Features:
        return Features(self.vec[pick], tuple(each[pick] for each in self.local))

    @property
    def shape(self) -> tuple[tuple[int, ...], ...]:
        """Of one photo: what can be compared has the same."""
        return tuple(each.shape[1:] for each in (self.vec, *self.local))

    def full(self) -> Features:
        """Without half precision."""
        return Features(self.vec, tuple(map(widened, self.local)))

    def stored(self) -> Features:
        """As they are kept: maps in half precision, unless that would cut large numbers off."""
        small = [not x.size or float(np.abs(x).max()) < LARGEST_HALF for x in self.local]
        local = tuple(x.astype(np.float16) if fits else x for x, fits in zip(self.local, small, strict=True))
        return Features(self.vec.astype(np.float32, copy=False), local)


def widened(x: Array) -> Array:
    """Half precision is for keeping, not for computing."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def join(some: Sequence[Features]) -> Features:
    if len({each.shape for each in some}) > 1:
        raise DataError("an encoder gives photos features of different shapes; use another", code="damaged-file")
    maps = zip(*(each.local for each in some), strict=True)
    return Features(np.concatenate([each.vec for each in some]), tuple(map(np.concatenate, maps)))


@dataclass(frozen=True)
class ClassMaps:
    """The mean local map of each class, and the least cosine of a patch that matches."""

    mean: Array  # (N, D', H, W)
    shots: Array  # (N,)
    level: float

    @property
    def n_patches(self) -> int:
        return int(np.prod(self.mean.shape[2:]))

    def match(self, local: Array, of: Array) -> Array:
        """(Q, P) bool: the patches of each map (Q, D', H, W) that match the class ``of`` (Q,)."""
        return cosines(local, self.mean[of]).max(axis=2) >= self.level

    def match_without(self, local: Array, of: Array) -> Array:
        """The same for support photos, each against its class without it (two photos or more)."""
        local = widened(local)
        n = self.shots[of].astype(local.dtype).reshape(-1, 1, 1, 1)
        rest = (self.mean[of] * n - local) / (n - 1).clip(1)
        return cosines(local, rest).max(axis=2) >= self.level


def class_maps(features: Features, label: Array) -> ClassMaps | None:
    """None without local maps, and for a single class: there is nothing foreign to tell it from."""
    shots = np.bincount(label)
    local = features.map
    if local is None or len(shots) < 2 or local.shape[2] * local.shape[3] < 2:
        return None
    mean = class_means(local, label)
    photos, classes = spread(np.arange(len(label)), SAMPLE_PHOTOS), spread(np.arange(len(shots)), SAMPLE_CLASSES)
    sample = local[photos]
    foreign = [
        cosines(some, np.broadcast_to(mean[c], some.shape)).max(axis=2).ravel()
        for c in classes.tolist()
        if len(some := sample[label[photos] != c])
    ]
    return ClassMaps(mean, shots, float(np.quantile(np.concatenate(foreign), FOREIGN)))


def class_means(x: Array, label: Array) -> Array:
    """(S, *F) -> (N, *F), by adding rows up: the cost does not grow with the classes."""
    ends = np.cumsum(shots := np.bincount(label))
    ordered = x if (label[1:] >= label[:-1]).all() else x[np.argsort(label, kind="stable")]  # a copy, if it must be
    total = []
    for first in range(0, len(shots), AT_ONCE):
        start = (ends - shots)[first : first + AT_ONCE]
        rows = widened(ordered[start[0] : ends[first : first + AT_ONCE][-1]])
        total.append(np.add.reduceat(rows, start - start[0], axis=0))
    summed = np.concatenate(total)
    return summed / shots.reshape(-1, *[1] * (x.ndim - 1)).astype(summed.dtype)


def class_likeness(vec: Array, label: Array) -> float:
    """Mean cosine between the mean vectors of different classes."""
    mean = unit(class_means(vec, label).astype(np.float64))
    n_way = len(mean)
    return float((np.square(mean.sum(axis=0)).sum() - np.square(mean).sum()) / max(n_way * (n_way - 1), 1))


def cosines(local: Array, other: Array) -> Array:
    """Maps (Q, D', H, W) and (Q, D', H', W') -> (Q, P, P') the cosine of each patch with each of the other."""
    a, b = (unit(widened(maps).reshape(*maps.shape[:2], -1), axis=1) for maps in (local, other))  # (Q, D', P)
    return a.swapaxes(1, 2) @ b


def unit(x: Array, axis: int = -1) -> Array:
    """Divided by its length along the axis; a vector of nearly no length stays short, one of too much becomes 0."""
    with np.errstate(over="ignore"):
        return x / np.sqrt(np.square(x).sum(axis=axis, keepdims=True)).clip(1e-12)


def spread(rows: Labels, most: int) -> Labels:
    """All rows, or ``most`` of them in even steps."""
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).round().astype(np.int64)]
