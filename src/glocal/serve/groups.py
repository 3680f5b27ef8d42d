"""Unknown photos in groups that may become classes: those that are alike, by vectors of the encoder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from glocal.recognizer.features import unit
from glocal.serve.snapshot import QueryAnswer, Snapshot

Vectors = NDArray[np.float32]
WITHOUT_PAIRS = 0.5  # cosine to group by when there is a single photo


def unknown_groups(recent: Sequence[QueryAnswer], now: Snapshot) -> list[list[QueryAnswer]]:
    """Photos that are called unknown and were not taught since, grouped by likeness; the largest group first."""
    done = now.photos.keys() | now.known_unknowns.keys()
    unknown = [each for each in recent if each.answer.is_unknown and each.query.id not in done]
    if not unknown:
        return []
    vectors = np.concatenate([each.query.views.vec for each in unknown])
    return [[unknown[i] for i in rows] for rows in group(vectors, _level(now))]


@lru_cache(maxsize=1)
def _level(now: Snapshot) -> float:
    support = now.enrolled().contents.support
    return likeness(support.bank.features.vec, support.class_of)


def group(vectors: Vectors, level: float) -> list[list[int]]:
    """Vectors (n, D) -> rows that belong together, the largest group first.

    Merge the two most alike groups while the mean cosine between their members is at least ``level``.  A chain of
    small steps does not make a group.
    """
    members = [[i] for i in range(len(vectors))]
    rows = unit(vectors)
    total = (rows @ rows.T).astype(np.float64)  # summed over the pairs of two groups
    size = np.ones(len(vectors))
    alive = np.ones(len(vectors), dtype=bool)
    while alive.sum() > 1:
        mean = total / np.outer(size, size)
        mean[~alive] = mean[:, ~alive] = -np.inf
        np.fill_diagonal(mean, -np.inf)
        i, j = sorted(np.unravel_index(int(mean.argmax()), mean.shape))
        if mean[i, j] < level:
            break
        members[i] += members[j]
        total[i] += total[j]
        total[:, i] += total[:, j]
        size[i] += size[j]
        alive[j] = False
    groups = [sorted(members[i]) for i in np.flatnonzero(alive)]
    return sorted(groups, key=lambda rows: (-len(rows), rows[0]))


def likeness(vectors: Vectors, label: NDArray[np.int64]) -> float:
    """The cosine that tells pairs of one class from pairs of two classes best, by support photos (S, D), (S,)."""
    rows = unit(vectors)
    cosine = rows @ rows.T
    above = np.triu(np.ones_like(cosine, dtype=bool), k=1)
    same = label[:, None] == label[None, :]
    within, between = np.sort(cosine[above & same]), np.sort(cosine[above & ~same])
    if not len(within):  # things alike should be more alike than any two classes are
        return float(between[-1]) if len(between) else WITHOUT_PAIRS
    if not len(between):
        return float(np.quantile(within, 0.25))
    levels = np.concatenate([within, between])
    kept = 1 - np.searchsorted(within, levels) / len(within)
    mixed = 1 - np.searchsorted(between, levels) / len(between)
    return float(levels[int(np.argmax(kept - mixed))])


def group_id(members: Iterable[str]) -> str:
    """Of pictures: the same in any order, today and tomorrow."""
    return hashlib.sha256(" ".join(sorted(members)).encode()).hexdigest()[:16]
