"""Unknown photos in groups of the same thing: average linkage, up to a level that the enrolled classes set.

Two groups are as alike as their pairs of photos are on average.  The two most alike groups become one, while they are
about as alike as two photos of an enrolled class.  So a chain of small steps makes no group.

The mean cosine of two groups is the product of the sums of their vectors, divided by the number of pairs.  So no matrix
of all pairs is kept.  Groups that may be joined share a pair of photos above the level: each photo names its
``NEIGHBOURS`` nearest ones, and beyond ``EXACT`` photos these are looked for along the main ``DIRECTIONS``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from glocal.recognizer.features import Array, Labels, unit
from glocal.recognizer.prediction import Prediction

if TYPE_CHECKING:
    from glocal.recognizer.batches import Batch
    from glocal.recognizer.photos.sources import Unreadable
    from glocal.recognizer.support import Support

# Measured over thirteen domains by benchmarks/groups.py; within a class and between classes are mean cosines.
SHARE = 0.35  # of the way from between to within, where the level lies
WITHIN, BETWEEN = 0.55, 0.41  # where the support has no such pairs
NEIGHBOURS = 32
EXACT, DIRECTIONS, SAMPLE = 5_000, 256, 5_000
ROWS = 512  # photos compared with all others at once: of 100,000 that is 200 MB
HIGHEST = 0.999  # the same photo twice is a group at any level


class Unknowns:
    """Collects what is called unknown, batch by batch: the answers and the vectors."""

    def __init__(self) -> None:
        self.answers: list[Prediction] = []
        self._vec: list[Array] = []

    def add(self, batch: Batch, answers: Iterable[Prediction | Unreadable]) -> None:
        answered = [each for each in answers if isinstance(each, Prediction)]
        rows = [i for i, each in enumerate(answered) if each.is_unknown]
        self.answers += [answered[i] for i in rows]
        self._vec.append(batch.features.vec[rows])

    def groups(self, support: Support) -> list[list[Prediction]]:
        """The largest group first; a photo that is like no other is a group of one."""
        if not self.answers:
            return []
        level = level_of(support.bank.features.vec, support.class_of)
        return [[self.answers[i] for i in rows] for rows in group(np.concatenate(self._vec), level)]


def level_of(vec: Array, label: Labels, share: float = SHARE) -> float:
    """The mean cosine down to which groups are joined, from support photos (S, D), (S,)."""
    within, between = mean_cosines(vec, label)
    if within is None:
        within = WITHIN if between is None else between + WITHIN - BETWEEN
    if between is None:
        between = within - (WITHIN - BETWEEN)
    return min(between + share * max(within - between, 0.0), HIGHEST)


def mean_cosines(vec: Array, label: Labels) -> tuple[float | None, float | None]:
    """Of pairs of photos within a class and between classes; None where there is no such pair."""
    rows, shots = unit(vec.astype(np.float64)), np.bincount(label)
    sums = np.zeros((len(shots), rows.shape[1]))
    np.add.at(sums, label, rows)
    own, every = float(np.square(sums).sum()), float(np.square(sums.sum(axis=0)).sum())
    n_own, n_every = int(np.square(shots).sum()), len(rows) ** 2
    within = (own - len(rows)) / (n_own - len(rows)) if n_own > len(rows) else None
    between = (every - own) / (n_every - n_own) if n_every > n_own else None
    return within, between


def group(vec: Array, level: float) -> list[list[int]]:
    """Vectors (B, D) -> rows that belong together, the largest group first; the order of the photos changes nothing."""
    if not len(vec):
        return []
    rows = np.ascontiguousarray(unit(vec.astype(np.float32)))
    # Sorted by their bytes, so that equal photos are one row and ties fall the same way in any order.
    keys = rows.view(f"S{rows.itemsize * rows.shape[1]}").ravel()
    _, first, place, copies = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    joined = _linkage(rows[first], copies, min(level, HIGHEST))
    members: dict[int, list[int]] = {}
    for row, name in enumerate(joined[place].tolist()):
        members.setdefault(name, []).append(row)
    return sorted(members.values(), key=lambda some: (-len(some), some[0]))


def _linkage(rows: Array, copies: Labels, level: float) -> Labels:
    """Unit vectors (B, D), each there so many times -> (B,) the group of each, named by one of its rows."""
    total, size = rows * copies[:, None].astype(np.float32), copies.astype(np.float32)
    first, second = _pairs(rows, level)
    near: list[set[int]] = [set() for _ in rows]
    heap = []
    for i, j, alike in zip(first.tolist(), second.tolist(), _cosines(rows, first, second).tolist(), strict=True):
        near[i].add(j)
        near[j].add(i)
        if alike >= level:
            heap.append((-alike, i, j, 0, 0))
    heapq.heapify(heap)
    name, changes = np.arange(len(rows)), np.zeros(len(rows), dtype=np.int64)
    members = [[i] for i in range(len(rows))]
    while heap:
        _, i, j, seen_i, seen_j = heapq.heappop(heap)
        if changes[i] != seen_i or changes[j] != seen_j:
            continue  # one of the two has grown or gone since
        total[i] += total[j]
        size[i] += size[j]
        members[i] += members[j]
        changes[i] += 1
        changes[j] = -1
        for other in near[j]:
            near[other].discard(j)
            near[other].add(i)
        near[i] = (near[i] | near[j]) - {i, j}
        near[i].discard(i)
        near[j] = set()
        others = np.array(sorted(near[i]), dtype=np.int64)
        means = total[others] @ total[i] / (size[others] * size[i])
        for other, mean in zip(others.tolist(), means.tolist(), strict=True):
            if mean >= level:
                heapq.heappush(heap, (-mean, i, other, int(changes[i]), int(changes[other])))
    for i, some in enumerate(members):
        if changes[i] >= 0:
            name[some] = i
    return name


def _pairs(rows: Array, level: float) -> tuple[Labels, Labels]:
    """Each photo with its nearest ones, every pair once; below the level there is none, but for what is estimated."""
    looked = rows if len(rows) <= EXACT else rows @ _main_directions(rows)
    few = min(NEIGHBOURS, len(rows) - 1)
    pairs = [np.empty(0, dtype=np.int64)]
    for start in range(0, len(rows) if few else 0, ROWS):
        alike = looked[start : start + ROWS] @ looked.T
        own = np.arange(len(alike))
        alike[own, own + start] = -np.inf
        nearest = np.argpartition(alike, -few, axis=1)[:, -few:]
        kept = np.take_along_axis(alike, nearest, axis=1) >= level - (0 if looked is rows else 0.1)
        i, j = np.broadcast_to(own[:, None] + start, nearest.shape)[kept], nearest[kept]
        pairs.append(np.minimum(i, j) * len(rows) + np.maximum(i, j))
    both = np.unique(np.concatenate(pairs))
    return both // len(rows), both % len(rows)


def _main_directions(rows: Array) -> Array:
    some = rows[:: max(1, len(rows) // SAMPLE)]
    _, directions = np.linalg.eigh(some.T @ some)
    kept: Array = directions[:, -DIRECTIONS:]
    return kept


def _cosines(rows: Array, first: Labels, second: Labels) -> Array:
    """Of pairs of rows."""
    alike = np.empty(len(first), dtype=np.float32)
    for start in range(0, len(first), ROWS * NEIGHBOURS):
        some = slice(start, start + ROWS * NEIGHBOURS)
        alike[some] = np.einsum("pd,pd->p", rows[first[some]], rows[second[some]])
    return alike
