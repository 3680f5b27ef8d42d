"""Is this picture (nearly) that one?  See ``glocal_runtime.twins``."""

from __future__ import annotations

import torch
from torch import Tensor

from glocal_runtime import twins
from glocal_runtime.images import Pixels
from glocal_runtime.twins import CELLS, NEAR, correlation, signature

__all__ = ["CELLS", "NEAR", "correlation", "signature", "stacked"]


def stacked(signatures: list[Pixels]) -> Tensor:
    """(n, 256) uint8."""
    return torch.from_numpy(twins.stacked(signatures))
