"""Figures: the curves hold the numbers they claim, and the same figure is the same file."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from glocal.research.metrics import score_histogram
from glocal.research.report import plots

KNOWN = np.array([True, True, False, False])
APART = (np.array([0.0, 1.0, 2.0, 3.0]), KNOWN)
MIXED = (np.array([0.0, 2.0, 1.0, 3.0]), KNOWN)  # three of four pairs in the right order
TIED = (np.zeros(4), KNOWN)


def test_density_draws_both_sides_with_area_one() -> None:
    figure = plots.density(score_histogram([APART, MIXED]), title="GEL")
    axes = figure.axes[0]
    outlines = [patch for patch in axes.patches if not patch.get_fill()]
    heights = [patch.get_data().values for patch in outlines]
    assert [height.mean() for height in heights] == pytest.approx([1, 1])
    assert heights[0][0] == 50  # half of the known scores lie in the first of 100 bins
    assert heights[1][99] == 50
    texts = [entry.get_text() for entry in axes.get_legend().get_texts()]
    assert texts == ["known classes", "unknown classes"]
    assert axes.get_legend().get_title().get_text() == "overlap (IoU) 33.3 %"
    assert axes.get_title(loc="left") == "GEL"


def test_roc_averages_tasks_at_equal_false_positive_rates_in_curves_of_many_looks() -> None:
    figure = plots.roc({"both": [APART, MIXED], "tied": [TIED]})
    axes = figure.axes[0]
    x, y = axes.lines[0].get_data()
    assert y[0] == 0
    at = {rate: y[np.flatnonzero(np.isclose(x, rate))[-1]] for rate in (0, 25, 50, 100)}
    assert at == {0: 75, 25: 75, 50: 100, 100: 100}  # the mean of (100, 50), (100, 50), (100, 100), (100, 100)
    assert np.allclose(axes.lines[1].get_xdata(), axes.lines[1].get_ydata())
    texts = [entry.get_text() for entry in axes.get_legend().get_texts()]
    assert texts == ["both, 87.5", "tied, 50.0", "chance, 50.0"]
    figure = plots.roc({f"m{i}": [APART] for i in range(28)})
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines[:28]}
    assert len(looks) == 28


def test_a_figure_is_the_same_file_every_time() -> None:
    first, again = (plots.to_svg(plots.density(score_histogram([APART, MIXED]))) for _ in range(2))
    assert first == again
    assert "<dc:date>" not in first
    figure = plots.roc({"$a$ and $b$": [APART]}, title="$100 & 50%")  # dollars are not mathematics here
    assert plots.to_png(figure) == plots.to_png(figure)


def test_a_curve_shows_points_bars_and_the_setting_in_use() -> None:
    points = [plots.Point(1, 0.70), plots.Point(2, 0.72, 0.01, 0.03), plots.Point(4, 0.69, -0.02, 0.0)]
    figure = plots.curve(points, marked=1, axis="k", title="top-k")
    (axes,) = figure.axes
    line = axes.containers[0].lines[0]
    assert [float(x) for x in line.get_xdata()] == [1, 2, 4]
    assert [float(y) for y in line.get_ydata()] == pytest.approx([70, 72, 69])
    segments = axes.containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose(segments[1][:, 1], [71, 73])  # 70 + 1 .. 70 + 3
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("k", "AUROC (%)")
    assert plots.to_svg(figure) == plots.to_svg(plots.curve(points, marked=1, axis="k", title="top-k"))


WITHOUT = """
import sys
sys.modules["matplotlib"] = None
from glocal.research.report import plots
plots.roc({"a": [([0.0, 1.0], [True, False])]})
"""


def test_without_matplotlib_the_message_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert "pip install glocal[plots]" in done.stderr.splitlines()[-1]
