"""What is kept of a picture, as arrays: a vector, and for methods that look at patches a map of local vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Labels = npt.NDArray[np.int64]
LARGEST_HALF = 6e4  # a local view with a larger number is kept in float32


@dataclass(frozen=True)
class Views:
    """B pictures, row by row."""

    vec: Array  # (B, D)
    local: Array | None = None  # (B, D', H, W)

    def __len__(self) -> int:
        return len(self.vec)

    def rows(self, pick: slice | Array | list[int]) -> Views:
        return Views(self.vec[pick], None if self.local is None else self.local[pick])

    def full(self) -> Views:
        """In full precision."""
        return Views(self.vec, None if self.local is None else self.local.astype(np.float32, copy=False))

    def stored(self) -> Views:
        """As they are kept: local views in half precision, unless that would cut large numbers off."""
        local = self.local
        if local is not None and (not local.size or float(np.abs(local).max()) < LARGEST_HALF):
            local = local.astype(np.float16)
        return Views(self.vec.astype(np.float32, copy=False), local)


def join(views: Sequence[Views]) -> Views:
    maps = [each.local for each in views if each.local is not None]
    return Views(np.concatenate([each.vec for each in views]), np.concatenate(maps) if maps else None)
