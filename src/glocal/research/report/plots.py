"""Figures: score density of known and unknown queries, mean ROC over tasks, a metric over a setting, joined pixels.

Each is a ``matplotlib.figure.Figure`` made without pyplot, so nothing global changes and nothing has to be closed.
Colours are Okabe and Ito's, which colour-blind readers can tell apart; line styles and hatching say the same again.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from glocal.common.errors import GlocalError
from glocal.research.metrics import Answers, ScoreHistogram, auroc
from glocal.research.metrics.arrays import ArrayLike, FloatArray, as_float, as_mask

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, VERMILLION = "#0072B2", "#D55E00"
# Okabe and Ito without yellow, which vanishes on white paper.
COLORS = (BLUE, VERMILLION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")  # 7 and 4 share no factor: 28 curves before one looks like another
INK, SOFT, GRID = "#1b2330", "#566173", "#e3e7ed"
GAP = 0.28  # between two joined pictures, whose side is 1
MAP = "cividis"  # equal steps of lightness, the same for colour-blind eyes

Scores: TypeAlias = "tuple[ArrayLike, ArrayLike]"  # open score (Q,), known (Q,) bool of one task


def density(histogram: ScoreHistogram, *, title: str = "") -> Figure:
    """How often each score occurs among known and among unknown queries (the paper's density figure)."""
    figure, axes = canvas(title)
    bins = len(histogram.known)
    sides = (
        ("known classes", histogram.known_share, BLUE, None),
        ("unknown classes", histogram.unknown_share, VERMILLION, "//"),
    )
    entries: dict[str, Any] = {}
    for name, share, color, hatch in sides:
        height = share * bins  # the area under each outline is 1
        # Two patches: in SVG a hatch inherits the transparency of the face it is drawn on.
        face = axes.stairs(height, histogram.edges, fill=True, facecolor=f"{color}33")
        outline = axes.stairs(height, histogram.edges, color=color, hatch=hatch, linewidth=1.4)
        entries[name] = (face, outline)
    axes.set(xlim=(0, 1), xlabel="open score, scaled to 0–1 in each task", ylabel="density (area = 1)")
    axes.set_ylim(0, 1.3 * bins * max(histogram.known_share.max(), histogram.unknown_share.max()))  # legend on top
    legend(axes, entries, heading=f"overlap (IoU) {100 * histogram.iou:.1f} %", place="upper right")
    return figure


def roc(curves: Mapping[str, Sequence[Scores]], *, title: str = "") -> Figure:
    """Mean ROC per name: the curve of every task, averaged at equal false positive rates.  Unknown is positive.

    The AUROC in the legend is the mean over tasks; scores of different tasks are never pooled.
    """
    figure, axes = canvas(title)
    entries = {}
    grid = np.linspace(0, 1, 1001)  # finer than the steps of a task, 1 / (its known queries)
    for i, (name, tasks) in enumerate(curves.items()):
        area = np.mean([auroc(score, known) for score, known in tasks])
        rate = np.mean([np.interp(grid, *roc_points(score, known)) for score, known in tasks], axis=0)
        (entries[f"{name}, {100 * area:.1f}"],) = axes.plot(
            100 * np.r_[0, grid],
            100 * np.r_[0, rate],
            color=COLORS[i % len(COLORS)],
            linestyle=STYLES[i % len(STYLES)],
            linewidth=2.2,
        )
    (entries["chance, 50.0"],) = axes.plot([0, 100], [0, 100], color=SOFT, linewidth=1, linestyle=(0, (2, 3)))
    axes.set(xlim=(-1, 101), ylim=(-1, 101), aspect="equal")
    axes.set(xlabel="known called unknown (false positives, %)", ylabel="unknown found (true positives, %)")
    legend(axes, entries, heading="AUROC, %", place="lower right")
    return figure


def roc_points(score: ArrayLike, known: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """False and true positive rates of one task from the strictest threshold to the laxest; ties share a point."""
    values = as_float(score, "score", ndim=1)
    mask = as_mask(known, "known", values)
    answers = Answers(values, mask, correct=mask)
    false, true = answers.known_above / answers.n_known, answers.unknown_above / answers.n_unknown
    return np.r_[0.0, false], np.r_[0.0, true]


class Point(NamedTuple):
    """A value at a setting, as fractions; low and high bound the difference to the marked point on the same tasks."""

    x: float
    mean: float
    low: float = 0.0
    high: float = 0.0


def curve(points: Sequence[Point], *, marked: float, axis: str, title: str = "") -> Figure:
    """AUROC over one setting.  ``marked`` is the x that differences are taken against; its point has no bar."""
    base = next(point for point in points if point.x == marked)
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
    axes.set(xlabel=axis, ylabel="AUROC (%)")
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


def joined(
    left: NDArray[np.uint8],
    right: NDArray[np.uint8],
    *,
    side: int,
    partner: NDArray[np.int64],
    cosine: FloatArray,
    names: tuple[str, str],
    title: str,
    below: str,
) -> Figure:
    """Two pictures side by side, each pixel of the left map joined to the pixel of the right that is most like it.

    Pictures (H, W, 3) under maps of side x side; ``partner`` and ``cosine`` (P,) are of each left pixel.
    """
    from matplotlib import cm, colors, patheffects

    figure, axes = canvas(title)
    figure.set_size_inches(5.4, 3.4)
    axes.grid(visible=False)
    offsets = (0.0, 1 + GAP)
    for picture, offset, name in zip((left, right), offsets, names, strict=True):
        # "nearest" keeps small pictures crisp; the rows of an array run downwards.
        axes.imshow(picture, extent=(offset, offset + 1, 0, 1), interpolation="nearest", aspect="equal")
        for i in range(side + 1):
            axes.plot([offset, offset + 1], [i / side] * 2, color="white", linewidth=0.8, alpha=0.75)
            axes.plot([offset + i / side] * 2, [0, 1], color="white", linewidth=0.8, alpha=0.75)
        label: Any = axes.text(offset + 0.5, 1.035, name, ha="center", va="bottom", fontsize=11.5, color=INK)
        label.set_parse_math(False)
    # One colour scale for all figures, so that they can be compared.
    scale = cm.ScalarMappable(colors.Normalize(0, 1), MAP)
    # Light and dark round every line: it must be seen on any picture and on the white between them.
    rims = ((4.0, INK), (3.2, "white"))
    outline = [*(patheffects.Stroke(linewidth=w, foreground=c) for w, c in rims), patheffects.Normal()]
    for u in np.argsort(cosine, kind="stable").tolist():  # the most similar pair on top
        v = int(partner[u])
        x, y = zip(_centre(u, side, offsets[0]), _centre(v, side, offsets[1]), strict=True)
        axes.plot(x, y, color=scale.to_rgba(cosine[u]), linewidth=1.7, marker="o", markersize=4.5, path_effects=outline)
    bar = figure.colorbar(scale, ax=axes, fraction=0.045, pad=0.02)
    bar.set_label("cosine of the two pixels", fontsize=10.5, color=INK)
    bar.ax.tick_params(labelsize=9.5, colors=INK)
    text: Any = axes.text(0, -0.05, below, ha="left", va="top", fontsize=10.5, color=SOFT, linespacing=1.35)
    text.set_parse_math(False)
    axes.set(xlim=(-0.01, 2.01 + GAP), ylim=(-0.3, 1.16))
    axes.axis("off")
    return figure


def _centre(pixel: int, side: int, offset: float) -> tuple[float, float]:
    row, column = divmod(pixel, side)
    return offset + (column + 0.5) / side, 1 - (row + 0.5) / side


def to_svg(figure: Figure) -> str:
    """The same figure gives the same text: fixed ids, no date, letters as outlines (no font needed to read it)."""
    matplotlib = _matplotlib()
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "glocal", "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return file.getvalue()


def to_png(figure: Figure, *, dpi: int = 160) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi, metadata={"Software": None})
    return file.getvalue()


def _matplotlib() -> Any:
    """Imported here, not above: tables and pages work without it, and it takes a while."""
    try:
        import matplotlib.figure
    except ImportError as missing:
        raise GlocalError("figures need matplotlib, which is not installed: pip install glocal[plots]") from missing
    return matplotlib


def canvas(title: str) -> tuple[Figure, Axes]:
    """Small in inches, so that letters stay large when the figure is shown at half its size."""
    figure = _matplotlib().figure.Figure(figsize=(5.4, 4.2), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=11, colors=INK, color=SOFT)
    axes.xaxis.label.set(fontsize=12, color=INK)
    axes.yaxis.label.set(fontsize=12, color=INK)
    if title:
        axes.set_title(title, fontsize=13, color=INK, loc="left", fontweight="bold", pad=10, parse_math=False)
    return figure, axes


def legend(
    axes: Axes, entries: Mapping[str, Any], *, heading: str, place: Literal["upper right", "lower right"]
) -> None:
    box = axes.legend(
        handles=entries.values(),
        labels=entries.keys(),
        title=heading,
        loc=place,
        fontsize=11,
        title_fontsize=11,
        framealpha=0.9,
        edgecolor=GRID,
    )
    box.set_alignment("left")
    for entry in box.get_texts():
        entry.set_parse_math(False)  # a name with two dollar signs is a name
