"""An example to try the page with: handwritten digits, some to teach and some to ask about; nothing is downloaded."""

from __future__ import annotations

from functools import cache

import numpy as np
from PIL import Image

from glocal.recognizer.photos.images import to_png
from glocal.recognizer.photos.sources import Source, as_source
from glocal.samples.digits import NAMES
from glocal.samples.embedded import render

TAUGHT = ("zero", "one", "two", "three")
SHOTS = 6  # photos of each
ASKED = ("zero", "one", "two", "three", "seven", "nine")  # what the photos to ask about show; two were not taught


def taught() -> dict[str, list[Source]]:
    """Classes with their photos."""
    return {
        name: [as_source(photo, f"{name}-{i}.png") for i, photo in enumerate(_pictures()[name][:SHOTS])]
        for name in TAUGHT
    }


def asked(place: int) -> bytes:
    """A photo to ask about, as PNG; none of them was taught."""
    return to_png(Image.fromarray(_pictures()[ASKED[place]][SHOTS]))


@cache
def _pictures() -> dict[str, list[np.ndarray]]:
    """A few of every digit, by different hands: they come ordered by who wrote them.

    With this seed the six answers show what is meant to happen; how often it does is for Check to tell.
    """
    images, labels, _ = render()
    order = np.random.default_rng(3).permutation(len(labels))
    return {name: list(images[order][labels[order] == digit]) for digit, name in enumerate(NAMES)}
