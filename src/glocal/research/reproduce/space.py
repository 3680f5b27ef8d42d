"""What runs leave on the disk: feature banks by what tells them apart, and how many pictures of them are new."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from glocal.research.data.episodes import EpisodeSpec


class Bank(NamedTuple):
    key: Any  # what tells it from others
    spec: Any  # how its pictures are chosen: asked for once more, they are there
    drawn: float  # pictures, as often as they are drawn; infinite for all there are
    of: float  # how many there are
    size: float  # bytes of one
    stays: bool = True  # otherwise it is dropped after use


class Added(NamedTuple):
    pictures: float  # to be encoded
    bytes: float


class Banks:
    """What the runs so far leave on the disk."""

    def __init__(self) -> None:
        self._drawn: dict[Any, dict[Any, float]] = {}  # by key and spec
        self._largest = 0.0  # of those that are dropped, of which there is one at a time

    def add(self, bank: Bank) -> Added:
        """What is new of it."""
        specs = self._drawn.setdefault(bank.key, {})
        before = touched(sum(specs.values()), bank.of)
        specs[bank.spec] = bank.drawn
        pictures = touched(sum(specs.values()), bank.of) - before
        if bank.stays:
            return Added(pictures, pictures * bank.size)
        more = max(0.0, pictures * bank.size - self._largest)
        self._largest += more
        return Added(pictures, more)


def drawn(spec: EpisodeSpec, tasks: int) -> int:
    """Pictures of that many tasks, some of them more than once."""
    return tasks * (spec.way * spec.shot_range[1] + spec.way * spec.query + spec.unknown_way * spec.unknown_query)


def touched(drawn: float, of: float) -> float:
    """How many different ones that is on average."""
    return of * -math.expm1(-drawn / of)
