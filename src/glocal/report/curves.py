"""A metric over one setting of a method, with the interval of its paired difference to the setting in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from glocal.report.plots import BLUE, INK, VERMILLION, canvas, legend
from glocal_runtime.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Point(NamedTuple):
    """Values as fractions; low and high bound the difference to the marked point on the same tasks."""

    x: float
    mean: float
    low: float = 0.0
    high: float = 0.0


def curve(points: Sequence[Point], *, marked: float, axis: str, title: str = "", metric: str = "AUROC") -> Figure:
    """``marked`` is the x that differences are taken against; its point has no bar."""
    base = next((point for point in points if point.x == marked), None)
    if base is None:
        raise DataError(f"the marked setting {marked:g} must be one of {', '.join(f'{p.x:g}' for p in points)}")
    figure, axes = canvas(title)
    below = [100 * (point.mean - (base.mean + point.low)) for point in points]
    above = [100 * (base.mean + point.high - point.mean) for point in points]
    x, y = [point.x for point in points], [100 * point.mean for point in points]
    bars = axes.errorbar(
        x,
        y,
        yerr=[[max(0.0, b) for b in below], [max(0.0, a) for a in above]],
        color=BLUE,
        linewidth=2,
        marker="o",
        markersize=6,
        capsize=4,
        elinewidth=1.3,
    )
    ring = axes.scatter([marked], [100 * base.mean], s=150, facecolors="none", edgecolors=VERMILLION, linewidths=2.2)
    ring.set_zorder(5)
    axes.set(xlabel=axis, ylabel=f"{metric} (%)")
    axes.set_xticks(_apart(x), [f"{value:g}" for value in _apart(x)])
    lowest, highest = (
        min(v - b for v, b in zip(y, below, strict=True)),
        max(v + a for v, a in zip(y, above, strict=True)),
    )
    room = max(0.5, highest - lowest)
    axes.set_ylim(lowest - 0.15 * room, highest + 0.55 * room)  # the legend stands above the curve
    axes.yaxis.label.set_color(INK)
    entries = {"value; bar: paired 95 % interval": bars, "setting of the tables": ring}
    legend(axes, entries, heading="", place="upper right")
    return figure


def _apart(values: Sequence[float]) -> list[float]:
    """Ticks at the settings, without those that would be written over their neighbour."""
    least = (max(values) - min(values)) / 14
    kept: list[float] = []
    for value in values:
        if not kept or value - kept[-1] >= least:
            kept.append(value)
    return kept
