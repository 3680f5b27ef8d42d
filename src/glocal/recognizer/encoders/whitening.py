"""Whitening: vectors in which the directions that vary within a class count less."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glocal.common.errors import DataError
from glocal.recognizer.features import Array, class_means

SHRINK = 0.5  # of the way from the covariance to its mean variance


@dataclass(frozen=True)
class Whitening:
    """Multiplies vectors (B, D) by the matrix."""

    matrix: Array  # (D, D)

    def __call__(self, vec: Array) -> Array:
        white: Array = vec @ self.matrix
        return white


def fit_whitening(vectors: Array, groups: Array | None = None) -> Whitening:
    """From vectors (B, D) of any pictures; with their groups (B,) by how vectors of one group differ.

    The covariance is drawn half of the way to its mean variance, so that fewer vectors than numbers are enough.
    The mean stays: without it convolutional networks catch fewer unknown photos.
    """
    vec = np.asarray(vectors, dtype=np.float64)
    if vec.ndim != 2 or not np.isfinite(vec).all():
        raise DataError(f"a whitening needs finite vectors of photos, got shape {vec.shape} or NaN; check the encoder")
    numbers = np.zeros(len(vec), np.int64) if groups is None else np.unique(groups, return_inverse=True)[1]
    off = vec - class_means(vec, numbers)[numbers]
    variance, directions = np.linalg.eigh(off.T @ off)
    if not variance.sum() > 0:
        raise DataError("a whitening needs photos that differ, two or more of a class; add photos", code="few-photos")
    drawn = (1 - SHRINK) * variance.clip(0) / variance.mean() + SHRINK
    matrix = (directions * drawn**-0.5) @ directions.T
    return Whitening(matrix.astype(np.float32))
