"""Validate tensors, arrays and lists once, and turn them into numpy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from glocal.common.errors import DataError
from glocal.recognizer.features import UNKNOWN

if TYPE_CHECKING:  # a metric on numpy arrays must not pay for importing torch
    from torch import Tensor

ArrayLike: TypeAlias = "Tensor | npt.ArrayLike"
FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


def as_float(x: ArrayLike, name: str, ndim: int) -> FloatArray:
    """float64, because two scores may differ only there.  Infinity has a place in an order, NaN has none."""
    array = np.asarray(_off_device(x), dtype=np.float64)
    if array.ndim != ndim:
        raise DataError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, got shape {array.shape}")
    if array.size == 0:
        raise DataError(f"{name} must have at least one entry, got shape {array.shape}: nothing can be measured")
    if np.isnan(array).any():
        raise DataError(
            f"{name} must not hold NaN, got {int(np.isnan(array).sum())} of {array.size}: NaN cannot be ranked; "
            f"look for a diverged model or 0/0 in the method that made it"
        )
    return array


def as_mask(x: ArrayLike, name: str, like: FloatArray) -> BoolArray:
    """A mask with the shape of ``like``.  Labels are refused: -1 (unknown) would silently count as True."""
    array = np.asarray(_off_device(x))
    if array.dtype != np.bool_:
        raise DataError(f"{name} must be a boolean mask, got {array.dtype}; from labels write label != UNKNOWN")
    if array.shape != like.shape:
        raise DataError(f"{name} must have one entry per score, shape {like.shape}, got {array.shape}")
    return array


def as_label(x: ArrayLike, logits: FloatArray) -> IntArray:
    """Labels (..., Q) for ``logits`` (..., Q, N): 0..N-1 or UNKNOWN."""
    array = np.asarray(_off_device(x))
    *shape, n_way = logits.shape
    if array.dtype.kind not in "iu":
        raise DataError(f"label must hold integers, got {array.dtype}")
    if array.shape != tuple(shape):
        raise DataError(f"label must have one entry per row of logits, shape {tuple(shape)}, got {array.shape}")
    if array.min() < UNKNOWN or array.max() >= n_way:
        raise DataError(
            f"label must be {UNKNOWN} (unknown) or 0..{n_way - 1} (columns of logits), got {array.min()}..{array.max()}"
        )
    return array.astype(np.int64)


def _off_device(x: Any) -> Any:
    """A tensor of any device and precision -> an array; numpy has no bfloat16, so floats are widened first."""
    if not hasattr(x, "detach"):
        return x
    tensor = x.detach().cpu()
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()
