"""Tasks with a chosen share of unknown queries."""

from __future__ import annotations

import pytest

from glocal.data.episodes import EpisodeSpec, unknown_share, with_unknown_share
from refusal import refused


@pytest.mark.parametrize(("share", "queries"), [(0.1, (27, 3)), (0.5, (15, 15)), (0.9, (3, 27))])
@pytest.mark.parametrize("way", [5, 20])
def test_shares_of_the_issue_are_exact(way: int, share: float, queries: tuple[int, int]) -> None:
    found = with_unknown_share(EpisodeSpec(way, 10, 15, way, 15), share)
    assert (found.query, found.unknown_query) == queries
    assert (found.way, found.shot, found.unknown_way) == (way, 10, way)
    assert unknown_share(found) == share


@pytest.mark.parametrize("unknown_way", [1, 2, 3, 7, 25])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.37, 0.5, 0.9])
def test_uneven_classes_come_near_in_share_and_size(unknown_way: int, share: float) -> None:
    spec = EpisodeSpec(20, 1, 15, unknown_way, 15)
    found = with_unknown_share(spec, share)
    total = (20 + unknown_way) * 15
    assert abs(unknown_share(found) - share) <= 0.01
    assert 0.75 * total <= 20 * found.query + unknown_way * found.unknown_query <= 1.25 * total
    assert min(found.query, found.unknown_query) >= 1


def test_the_nearest_share_is_found_among_all() -> None:
    """Against every pair of whole numbers, tried one by one."""
    spec, share = EpisodeSpec(3, 1, 10, 4, 10), 0.23
    every = [EpisodeSpec(3, 1, q, 4, u) for q in range(1, 60) for u in range(1, 60) if 52.5 <= 3 * q + 4 * u <= 87.5]
    nearest = min(abs(unknown_share(each) - share) for each in every)
    assert abs(unknown_share(with_unknown_share(spec, share)) - share) == nearest


@pytest.mark.parametrize(
    ("spec", "share", "sentence"),
    [
        (EpisodeSpec(), 0.0, "must lie between 0 and 1, such as 0.1, got 0.0"),
        (EpisodeSpec(), 10.0, "got 10.0"),
        (EpisodeSpec(5, 1, 15, 0, 0), 0.1, "needs unknown classes, but unknown_way is 0"),
        (EpisodeSpec(5, 1, 3, 5, 3), 0.1, "nearest to 0.1 is 0.143; ask for more queries per class"),
    ],
)
def test_refuses(spec: EpisodeSpec, share: float, sentence: str) -> None:
    with refused("data", sentence):
        with_unknown_share(spec, share)
