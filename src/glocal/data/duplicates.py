"""Pictures that occur more than once, found by their content digests: nothing is decoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glocal.data.dataset import ClassDataset

SHOWN = 5  # groups given as examples


@dataclass(frozen=True)
class Place:
    """One of several equal pictures: ``index`` is what ``ClassDataset.image`` of that split takes."""

    split: str
    class_name: str
    index: int


Group = tuple[Place, ...]  # equal pictures


@dataclass(frozen=True)
class Duplicates:
    """Groups of equal pictures; ``by`` counts them for each split, or for those that share them, "train and test"."""

    groups: int
    pictures: int  # in all groups together
    mixed: int  # groups whose pictures are called different classes
    by: Mapping[str, int]
    examples: tuple[Group, ...]


def find_duplicates(splits: Mapping[str, ClassDataset]) -> tuple[Duplicates, Duplicates]:
    """Equal pictures within a split, and across splits.

    Two equal pictures of one split with a third in another are one group of each kind.
    """
    within: list[Group] = []
    across: list[Group] = []
    for group in _groups(splits):
        parts = [tuple(place for place in group if place.split == split) for split in splits]
        within += [part for part in parts if len(part) > 1]
        if sum(map(bool, parts)) > 1:
            across.append(group)
    return _counted(within), _counted(across)


def _groups(splits: Mapping[str, ClassDataset]) -> Iterator[Group]:
    """Groups of equal pictures, in the order of their first one."""
    names, sets = list(splits), list(splits.values())
    start = np.cumsum([0, *map(len, sets)])  # where each split begins among all pictures
    for rows in _equal_rows(np.concatenate([data.digest for data in sets])):
        places = []
        for row in rows:
            s = int(np.searchsorted(start, row, side="right")) - 1
            i = int(row - start[s])
            places.append(Place(names[s], sets[s].classes[sets[s].label[i]], i))
        yield tuple(places)


def _equal_rows(digest: NDArray[np.uint8]) -> list[NDArray[np.intp]]:
    """Ascending rows (k,) of each content that (n, 32) digests hold k > 1 times."""
    words = np.ascontiguousarray(digest).view(np.uint64)  # (n, 4): four comparisons instead of 32
    order = np.lexsort(words.T)  # stable: equal rows stay ascending
    new = np.ones(len(order) + 1, bool)
    new[1:-1] = (words[order[1:]] != words[order[:-1]]).any(1)
    bounds = np.flatnonzero(new)
    repeated = np.flatnonzero(np.diff(bounds) > 1)
    return sorted((order[bounds[g] : bounds[g + 1]] for g in repeated), key=lambda rows: int(rows[0]))


def _counted(groups: Sequence[Group]) -> Duplicates:
    return Duplicates(
        groups=len(groups),
        pictures=sum(map(len, groups)),
        mixed=sum(len({place.class_name for place in group}) > 1 for group in groups),
        by=dict(Counter(" and ".join(dict.fromkeys(place.split for place in group)) for group in groups)),
        examples=tuple(groups[:SHOWN]),
    )
