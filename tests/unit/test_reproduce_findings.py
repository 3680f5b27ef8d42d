"""The words of the opening follow from the intervals, and the figures from the points."""

from __future__ import annotations

import numpy as np
import pytest

from glocal.metrics import PairedDifference
from glocal.report import plots
from glocal.report.plots import Point, curve, joined
from glocal.reproduce.findings import _verdict
from glocal.reproduce.pixel_examples import Example, _Candidate, _choose, _places
from glocal_runtime.errors import DataError


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


def test_a_curve_shows_points_bars_and_the_setting_in_use() -> None:
    points = [Point(1, 0.70), Point(2, 0.72, 0.01, 0.03), Point(4, 0.69, -0.02, 0.0)]
    figure = curve(points, marked=1, axis="k", title="top-k")
    (axes,) = figure.axes
    line = axes.containers[0].lines[0]
    assert [float(x) for x in line.get_xdata()] == [1, 2, 4]
    assert [float(y) for y in line.get_ydata()] == pytest.approx([70, 72, 69])
    segments = axes.containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose(segments[1][:, 1], [71, 73])  # 70 + 1 .. 70 + 3
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("k", "AUROC (%)")
    assert plots.to_svg(figure) == plots.to_svg(curve(points, marked=1, axis="k", title="top-k"))
    with pytest.raises(DataError, match="marked setting 3 must be one of 1, 2, 4"):
        curve(points, marked=3, axis="k")


def test_patches_join_each_pixel_to_its_partner() -> None:
    picture = np.zeros((6, 6, 3), np.uint8)
    figure = joined(
        picture,
        picture,
        side=2,
        partner=np.array([3, 0, 0, 0]),
        cosine=np.array([0.9, 0.1, 0.2, 0.3]),
        names=("a $x$", "b"),
        title="Look-alike",
        below="E: place 3",
    )
    lines = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert len(lines) == 4
    first = lines[-1]  # the most similar pair is drawn last: upper left to lower right
    np.testing.assert_allclose(first.get_xdata(), [0.25, 1.28 + 0.75])
    np.testing.assert_allclose(first.get_ydata(), [0.75, 0.25])
    assert plots.to_png(figure)[:4] == b"\x89PNG"


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
