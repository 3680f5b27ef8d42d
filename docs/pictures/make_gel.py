"""Draws docs/pictures/gel.jpg: both branches of GEL and their energies on a known and an unknown part.

    python docs/pictures/make_gel.py

Every number in the picture comes from this run: the trained head ``photos-gel`` on rendered parts.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.functional import interpolate, normalize

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tools"))

from glocal.recognizer import Recognizer  # noqa: E402
from glocal.recognizer.photos.images import decode, fit  # noqa: E402
from glocal.research.engine.checkpoint import load_model  # noqa: E402
from glocal.research.types import normalize as standardize  # noqa: E402
from scenes import write  # noqa: E402

CLASSES, SHOTS, ASKED = ("nut", "gear", "screw"), 5, ("gear", "hook")
KNOWN, UNKNOWN, GREY = "#0b62a4", "#a83c00", "#8fa3b5"


def main() -> None:
    model = load_model("photos-gel").eval()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        taught = {name: write(home / name, name, range(SHOTS)) for name in CLASSES}
        asked = [path for name in ASKED for path in write(home / "asked", name, range(20, 21), prefix=f"{name}-")]
        threshold = Recognizer.enroll(taught, head="gel").threshold.value
        support, photos = (
            np.stack([fit(decode(path), model.backbone.preprocess) for path in paths])
            for paths in ([path for paths in taught.values() for path in paths], asked)
        )
    with torch.inference_mode():
        views, query = (
            model.method.embed(
                model.backbone(standardize(torch.from_numpy(some).permute(0, 3, 1, 2), model.backbone.preprocess))
            )
            for some in (support, photos)
        )
        state = model.method.enroll(views, torch.eye(len(CLASSES)).repeat_interleave(SHOTS, dim=0))
        s_class, s_local = model.method.similarities(state, query)
        scores = model.method.compare(state, query).scores
        best = s_class.argmax(dim=1)
        cells, of_class = (normalize(each.flatten(2), dim=1) for each in (query.local, state.local[best]))
        match = (cells.mT @ of_class).amax(dim=2).unflatten(1, query.local.shape[2:])
    draw(photos, s_class, s_local, match, scores, best, threshold)


def draw(photos: Any, s_class: Any, s_local: Any, match: Any, scores: Any, best: Any, threshold: float) -> None:
    figure, axes = plt.subplots(2, 5, figsize=(12, 5.2), width_ratios=(1, 1.1, 1, 1.1, 1.3), layout="constrained")
    titles = ("photo", "class-wise: $s_c$", "matching patches", "pixel-wise: $s_f$", "energies")
    heat = interpolate(match[:, None], size=photos.shape[1:3], mode="nearest")[:, 0]
    for row, (photo, class_, local, cells) in enumerate(zip(photos, s_class, s_local, heat, strict=True)):
        for axis, title in zip(axes[row], titles, strict=True):
            axis.set_title(title if row == 0 else "", fontsize=11)
        axes[row, 0].imshow(photo)
        axes[row, 2].imshow(photo)
        axes[row, 2].imshow(cells, cmap="Oranges", alpha=0.6, vmin=float(match.min()), vmax=float(match.max()))
        for axis in axes[row, [0, 2]]:
            axis.set_axis_off()
        for axis, values, most in ((axes[row, 1], class_, s_class.max()), (axes[row, 3], local, s_local.max())):
            colors = [KNOWN if n == int(best[row]) else GREY for n in range(len(CLASSES))]
            bars = axis.barh(CLASSES, values, color=colors)
            axis.bar_label(bars, fmt="%.1f", padding=3)
            axis.set_xlim(0, 1.25 * float(most))
            axis.invert_yaxis()
            axis.set_xticks([])
        energies = [float(scores[name][row]) for name in ("E_c", "E_f", "E")]
        unknown = energies[-1] > threshold
        axis = axes[row, 4]
        bars = axis.barh(
            ("$E_c$", "$E_f$", "$E = E_c + E_f$"), energies, color=(GREY, GREY, UNKNOWN if unknown else KNOWN)
        )
        axis.bar_label(bars, fmt="%.1f", padding=3)
        axis.axvline(threshold, color="black", linestyle="--", linewidth=1)
        axis.set_xlim(1.3 * float(scores["E"].min()), 2)
        axis.invert_yaxis()
        axis.set_xticks([threshold], [f"threshold {threshold:.1f}"])
        answer = "unknown" if unknown else CLASSES[int(best[row])]
        axes[row, 0].text(
            0.5, -0.08, f"answer: {answer}", transform=axes[row, 0].transAxes, ha="center", va="top", fontsize=11
        )
        for axis in axes[row, [1, 3, 4]]:
            axis.spines[["top", "right", "bottom"]].set_visible(False)
    figure.savefig(HERE / "gel.jpg", dpi=100, pil_kwargs={"quality": 85})


if __name__ == "__main__":
    main()
