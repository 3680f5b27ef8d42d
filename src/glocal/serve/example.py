"""An example to try the page with: handwritten digits, some to teach and some to ask about; nothing is downloaded."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import numpy as np
from PIL import Image

from glocal.recognizer.photos.images import encoded
from glocal.recognizer.photos.sources import Source, as_source

TAUGHT = {"zero": 0, "one": 1, "two": 2, "three": 3}
SHOTS = 6  # photos of each
ASKED = (0, 1, 2, 3, 7, 9)  # what the photos to ask about show; the last two were not taught


def is_there() -> bool:
    """The digits are those inside scikit-learn."""
    return find_spec("sklearn") is not None


def taught() -> dict[str, list[Source]]:
    """Classes with their photos."""
    return {
        name: [as_source(photo, f"{name}-{i}.png") for i, photo in enumerate(_pictures()[digit][:SHOTS])]
        for name, digit in TAUGHT.items()
    }


def asked(place: int) -> bytes:
    """A photo to ask about, as PNG; none of them was taught."""
    return encoded(Image.fromarray(_pictures()[ASKED[place]][SHOTS]))


@cache
def _pictures() -> dict[int, list[np.ndarray]]:
    """A few of every digit, by different hands: they come ordered by who wrote them.

    The seed was chosen so that the six answers show what is meant to happen; how often it does is for Check to tell.
    """
    from glocal.research.data.benchmarks.embedded import render

    images, labels, _ = render("test")
    order = np.random.default_rng(3).permutation(len(labels))
    return {digit: list(images[order][labels[order] == digit][: SHOTS + 1]) for digit in range(10)}
