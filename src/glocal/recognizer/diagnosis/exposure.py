"""Blurred, dark and overexposed photos of a support, by their thumbnails.

What is usual depends on what is shown: drawings are bright, the inside of a body is dark.  So a photo stands out
when it differs from the median photo of the support, and is dark or bright as such.
"""

from __future__ import annotations

import math

import numpy as np

from glocal.recognizer.features import spread
from glocal.recognizer.photos.images import UnusableImage, decode
from glocal.recognizer.support import Support

FEWEST = 4  # photos: of fewer there is no usual one
MOST = 1_000  # photos whose thumbnails are read, which takes a third of a second
SHARPNESS = 0.25  # of the median
SMALLEST = 8  # pixels a side
DARK, BRIGHT = 30, 235  # mean grey
APART = 2.0  # times as much light in the median photo, or as much room to white


def poor_photos(support: Support) -> dict[int, str]:
    """What is wrong with photos, by their place in the support."""
    rows = spread(np.arange(len(support.photos)), MOST)
    light, sharpness = np.array([_light_and_sharpness(support.photos[i].thumbnail) for i in rows.tolist()]).T
    if np.isfinite(light).sum() < FEWEST:
        return {}
    usual, sharp = np.nanmedian(light), np.nanmedian(sharpness)
    poor: dict[int, str] = {}
    for name, rule in (
        ("blurred", sharpness < SHARPNESS * sharp),
        ("overexposed", (light > BRIGHT) & (APART * (255 - light) < 255 - usual)),
        ("dark", (light < DARK) & (APART * light < usual)),
    ):
        poor |= {int(i): name for i in rows[rule]}
    return poor


def _light_and_sharpness(thumbnail: bytes) -> tuple[float, float]:
    """Mean grey; and how much neighbouring pixels differ, beside how much all do.  NaN where there is no picture."""
    try:
        grey = decode(thumbnail).mean(axis=2, dtype=np.float32)
    except UnusableImage:
        return math.nan, math.nan
    if min(grey.shape) < SMALLEST:  # vectors that were enrolled have none
        return math.nan, math.nan
    bends = grey[1:-1, 1:-1] * 4 - grey[:-2, 1:-1] - grey[2:, 1:-1] - grey[1:-1, :-2] - grey[1:-1, 2:]
    return float(grey.mean()), float(bends.std() / (grey.std() + 1.0))
