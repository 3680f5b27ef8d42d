"""Figures: score density of known and unknown queries, and the mean ROC over tasks.

Each is a ``matplotlib.figure.Figure`` made without pyplot, so nothing global changes and nothing has to be closed.
Colours are Okabe and Ito's, which colour-blind readers can tell apart; line styles and hatching say the same again.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from glocal.metrics import Answers, ScoreHistogram, auroc
from glocal.metrics.arrays import ArrayLike, FloatArray, as_float, as_mask
from glocal_runtime.errors import DataError, GlocalError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, VERMILLION = "#0072B2", "#D55E00"
# Okabe and Ito without yellow, which vanishes on white paper.
COLORS = (BLUE, VERMILLION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")  # 7 and 4 share no factor: 28 curves before one looks like another
INK, SOFT, GRID = "#1b2330", "#566173", "#e3e7ed"

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
        if not tasks:
            raise DataError(f"the ROC of {name!r} needs the scores of at least one task, got none")
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
