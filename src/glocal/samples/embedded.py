"""1,797 handwritten digits that come with the package, to try things with and to be tested on.

They are the Optical Recognition of Handwritten Digits by Alpaydin and Kaynak (UCI, CC BY 4.0), as scikit-learn has
them.  Each was scanned, stretched to a 32 x 32 bitmap and counted in blocks, which leaves 64 numbers.  Here they are
enlarged to 32 x 32 RGB, bright ink on black.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from glocal.common.errors import DataError

SIZE = 32  # of a picture
FULL = 16  # ink of a block


class Pictures(NamedTuple):
    """A split as arrays."""

    images: npt.NDArray[np.uint8]  # (n, 32, 32, 3)
    labels: npt.NDArray[np.int64]  # (n,)
    class_names: tuple[str, ...]


@cache
def render(split: str = "test") -> Pictures:
    """All of them, ordered by who wrote them: the split test of the data set ``embedded``."""
    if split != "test":
        raise DataError(f"the digits are the split test, got {split!r}; the others come with glocal[research]")
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as stored:
        blocks, labels = stored["blocks"], stored["labels"].astype(np.int64)
    return Pictures(enlarge((blocks / FULL).astype(np.float32)), labels, tuple("0123456789"))


def enlarge(blocks: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Blocks (n, 8, 8) of ink 0..1 -> pictures (n, 32, 32, 3)."""
    large = [Image.fromarray(image).resize((SIZE, SIZE), Image.Resampling.BICUBIC) for image in blocks]
    grey = np.clip(np.rint(255 * np.stack([np.asarray(image) for image in large])), 0, 255).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=3)
