"""Vectors of any program in place of photos: of pictures, sound or text.

What is kept of a photo beside its features is blank here, so nothing is shown, and no duplicates are sought by looks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from glocal.common.errors import DataError
from glocal.recognizer.batches import Batch
from glocal.recognizer.features import Array, Features, unit
from glocal.recognizer.photos.sources import Picture
from glocal.recognizer.support import CELLS, THUMBNAIL

BLANK = np.zeros(CELLS * CELLS, np.uint8)
WHITE = np.full((THUMBNAIL, THUMBNAIL, 3), 255, np.uint8)


def vector_batch(vectors: npt.ArrayLike, names: Sequence[str] | None = None, *, length: int | None = None) -> Batch:
    """Vectors (B, D) with their names; of that length, where others were enrolled before."""
    try:
        vec: Array = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"vectors must be an array (B, D) of numbers: {error}", code="bad-vectors") from error
    if vec.ndim != 2 or not vec.size:
        raise DataError(f"vectors must be an array (B, D) of numbers, got shape {vec.shape}", code="bad-vectors")
    if length not in (None, vec.shape[1]):
        raise DataError(
            f"vectors must have {length} numbers, as those that were enrolled, got {vec.shape[1]}; make them with the "
            "same program",
            code="other-length",
        )
    named = [f"vector {i}" for i in range(len(vec))] if names is None else list(map(str, names))
    if len(named) != len(vec):
        raise DataError(f"each vector needs a name, got {len(vec)} vectors and {len(named)} names", code="bad-vectors")
    wrong = np.flatnonzero(~np.isfinite(vec).all(axis=1) | ~vec.any(axis=1))
    if len(wrong):
        raise DataError(
            f"{named[wrong[0]]} is all 0 or has numbers that are not finite, as have {len(wrong) - 1} more; leave "
            "them out",
            code="not-finite",
        )
    digests = (hashlib.sha256(row.tobytes()).hexdigest() for row in vec)
    pictures = (Picture(name, WHITE, digest, BLANK) for name, digest in zip(named, digests, strict=True))
    return Batch(tuple(pictures), Features(unit(vec)))
