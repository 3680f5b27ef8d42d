"""Two pictures side by side, each pixel of one map joined to the pixel of the other that is most like it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from glocal.report.plots import INK, SOFT, canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAP = 0.28  # between the pictures, whose side is 1
MAP = "cividis"  # equal steps of lightness, the same for colour-blind eyes


def joined(
    left: npt.NDArray[np.uint8],
    right: npt.NDArray[np.uint8],
    *,
    side: int,
    partner: npt.NDArray[np.int64],
    cosine: npt.NDArray[np.float64],
    names: tuple[str, str],
    title: str,
    below: str,
) -> Figure:
    """Pictures (H, W, 3) under maps of side x side; ``partner`` and ``cosine`` (P,) are of each left pixel."""
    from matplotlib import patheffects

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
    from matplotlib import cm, colors

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
