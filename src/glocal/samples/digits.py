"""The handwritten digits as photos, by name."""

from __future__ import annotations

from glocal.recognizer.photos.sources import Source, as_source
from glocal.samples.embedded import render

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def digits() -> dict[str, list[Source]]:
    """Name of the digit -> its pictures, in the order of those who wrote them."""
    images, labels, _ = render()
    return {
        name: [as_source(image, f"{name}/{i}.png") for i, image in enumerate(images[labels == digit])]
        for digit, name in enumerate(NAMES)
    }
