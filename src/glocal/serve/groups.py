"""Recent photos in groups that may become classes, and those to label next."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from glocal.recognizer.groups import group, level_of
from glocal.serve.snapshot import QueryAnswer, Snapshot

NEXT = 5  # photos to label next


def unknown_groups(recent: Sequence[QueryAnswer], now: Snapshot) -> list[list[QueryAnswer]]:
    """Photos that are called unknown and were not taught since, grouped by likeness; the largest group first."""
    unknown = [each for each in _without_label(recent, now) if each.answer.is_unknown]
    if not unknown:
        return []
    vec = np.concatenate([each.query.views.vec for each in unknown])
    return [[unknown[i] for i in rows] for rows in group(vec, _level(now))]


def label_next(recent: Sequence[QueryAnswer], now: Snapshot) -> list[QueryAnswer]:
    """The most useful photo first; of few photos there is nothing to choose."""
    some = _without_label(recent, now)
    if len(some) <= NEXT:
        return []
    vec = np.concatenate([each.query.views.vec for each in some])
    return [some[i] for i in now.enrolled().rank([each.answer for each in some], vec, NEXT)]


def _without_label(recent: Sequence[QueryAnswer], now: Snapshot) -> list[QueryAnswer]:
    labelled = now.photos.keys() | now.known_unknowns.keys()
    return [each for each in recent if each.query.id not in labelled]


@lru_cache(maxsize=1)
def _level(now: Snapshot) -> float:
    support = now.enrolled().contents.support
    return level_of(support.bank.features.vec, support.class_of)


def group_id(members: Iterable[str]) -> str:
    """Of pictures: the same in any order, today and tomorrow."""
    return hashlib.sha256(" ".join(sorted(members)).encode()).hexdigest()[:16]
