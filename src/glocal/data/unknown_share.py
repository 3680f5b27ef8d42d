"""Tasks whose share of unknown queries is chosen: deployment has 1 in 10, or 9 in 10, not one half."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from glocal.data.episodes import EpisodeSpec
from glocal_runtime.errors import DataError

TOLERANCE = 0.01  # how far the share of a task may be from what was asked
ROOM = 0.25  # by how much the number of queries may differ from that of the balanced task


def unknown_share(spec: EpisodeSpec) -> float:
    """Unknown queries among all queries of a task."""
    unknown = spec.unknown_way * spec.unknown_query
    return unknown / (spec.way * spec.query + unknown)


def with_unknown_share(spec: EpisodeSpec, share: float) -> EpisodeSpec:
    """The same classes and about as many queries in all, dealt so that ``share`` of them are unknown.

    Every class has a whole number of queries.  Among those numbers whose total stays within a quarter of
    ``(way + unknown_way) * query``, the nearest share wins, then the nearest total.  Shares of 10, 50 and 90 % are
    exact where there are as many unknown as known classes and 15 queries of each: 27 + 3, 15 + 15, 3 + 27.

    >>> with_unknown_share(EpisodeSpec(), 0.1)
    EpisodeSpec(way=5, shot=1, query=27, unknown_way=5, unknown_query=3)
    """
    if not 0 < share < 1:
        raise DataError(f"the share of unknown queries must lie between 0 and 1, such as 0.1, got {share}")
    if not spec.unknown_way:
        raise DataError(f"a share of {share} unknown queries needs unknown classes, but unknown_way is 0")
    total = (spec.way + spec.unknown_way) * spec.query
    best = min(_dealt(spec, total), key=lambda s: (abs(unknown_share(s) - share), abs(_queries(s) - total)))
    if abs(unknown_share(best) - share) > TOLERANCE:
        raise DataError(
            f"with about {total} queries of {spec.way} known and {spec.unknown_way} unknown classes the share of "
            f"unknown queries nearest to {share} is {unknown_share(best):.3f}; ask for more queries per class"
        )
    return best


def _dealt(spec: EpisodeSpec, total: int) -> Iterator[EpisodeSpec]:
    """At least one query per class, and a total within ``ROOM``; the task as it is always belongs to them."""
    yield replace(spec, unknown_query=spec.query)
    for query in range(1, int(total * (1 + ROOM)) // spec.way + 1):
        known = spec.way * query
        least = -(-(total * (1 - ROOM) - known) // spec.unknown_way)  # rounded up
        most = (total * (1 + ROOM) - known) // spec.unknown_way
        for unknown_query in range(max(1, int(least)), int(most) + 1):
            yield replace(spec, query=query, unknown_query=unknown_query)


def _queries(spec: EpisodeSpec) -> int:
    return spec.way * spec.query + spec.unknown_way * spec.unknown_query
