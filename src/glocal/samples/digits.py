"""The handwritten digits inside scikit-learn as photos (Alpaydin and Kaynak 1998), enlarged to 32 x 32 pixels."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
from PIL import Image

from glocal.common.errors import DataError
from glocal.recognizer.photos.sources import Source

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SIDE, INK = 32, 16  # pixels; the largest value of a pixel of theirs


def digits() -> dict[str, list[Source]]:
    """Name of the digit -> its pictures."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError(
            "the digits are inside scikit-learn, which is not installed: pip install glocal[demo]"
        ) from error
    data = load_digits()
    return {name: _photos(name, data.images[data.target == digit]) for digit, name in enumerate(NAMES)}


def _photos(name: str, images: npt.NDArray[np.float64]) -> list[Source]:
    return [Source(f"{name}/{i}.png", partial(_enlarged, image)) for i, image in enumerate(images)]


def _enlarged(image: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    grey = Image.fromarray((image * (255 / INK)).astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return np.asarray(grey.convert("RGB"))
