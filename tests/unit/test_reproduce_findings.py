"""The opening of a report follows from the intervals, and the examples of figure-pixels from their rule."""

from __future__ import annotations

import numpy as np
import pytest

from glocal.metrics import PairedDifference
from glocal.reproduce.findings import _verdict
from glocal.reproduce.pixel_examples import Example, _Candidate, _choose, _places


def gap(low: float, high: float) -> PairedDifference:
    return PairedDifference((low + high) / 2, low, high, 0.5, 3, 2, 5)


@pytest.mark.parametrize(
    ("gaps", "words"),
    [
        ([(0.1, 0.2), (0.01, 0.3)], "helps"),
        ([(-0.2, -0.1)], "hurts"),
        ([(-0.1, 0.2), (-0.3, 0.1)], "makes no settled difference"),
        ([(0.1, 0.2), (-0.1, 0.1)], "helps, but not in every setting"),
        ([(-0.2, -0.1), (-0.1, 0.1)], "hurts, but not in every setting"),
        ([(0.1, 0.2), (-0.2, -0.1)], "helps in some settings and hurts in others"),
        ([(0.0, 0.2)], "makes no settled difference"),  # 0 is not left out
    ],
)
def test_the_verdict_is_what_the_intervals_allow(gaps: list[tuple[float, float]], words: str) -> None:
    assert _verdict([gap(*each) for each in gaps]) == words


def test_places_begin_with_the_most_unknown_and_ties_share_the_better_one() -> None:
    assert _places(np.array([0.1, 0.9, 0.5, 0.9])).tolist() == [4, 1, 3, 1]


def test_examples_are_one_of_each_kind_then_four_more_without_repeating_a_pair() -> None:
    pairs = ["ab", "ab", "cd", "ef", "ab", "gh", "ij", "kl", "mn"]
    kinds = ["look-alike"] * 3 + ["shared background"] + ["look-alike"] * 5
    found = [_Candidate(kind, 20 - i, i, 0, (1, 1, 1)) for i, kind in enumerate(kinds)]  # type: ignore[arg-type]

    def draw(candidate: _Candidate) -> Example:
        truth, other = pairs[candidate.task]
        empty = np.zeros((1, 1, 3), np.uint8)
        return Example(
            candidate.kind, truth, other, candidate.task, empty, empty, 1, np.zeros(1, np.int64), np.ones(1), (2, 1, 1)
        )

    shown = _choose(found, draw)
    assert [each.truth + each.taken_for for each in shown] == ["ab", "ef", "cd", "gh", "ij", "kl"]
    assert [each.kind for each in shown][:2] == ["look-alike", "shared background"]
