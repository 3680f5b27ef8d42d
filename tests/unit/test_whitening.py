"""Whitening: what it does to the spread of vectors within groups."""

from __future__ import annotations

import numpy as np
import pytest

from glocal.common.errors import DataError
from glocal.hub.whitening import fit_whitening


def groups_apart(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two groups far apart along the first axis, whose photos differ along the second."""
    label = np.repeat([0, 1], 200)
    vec = rng.normal(size=(400, 3)) * (0.1, 3.0, 0.1) + np.outer(label, (20.0, 0.0, 0.0))
    return vec, label


def test_what_varies_within_groups_counts_less() -> None:
    vec, label = groups_apart(np.random.default_rng(0))
    white = vec @ fit_whitening(vec, label)
    apart = white[label == 1].mean(axis=0) - white[label == 0].mean(axis=0)
    within = white[label == 0].std(axis=0)
    assert apart[0] / within[1] > 1.5 * (20 / 3)
    assert within[1] / within[0] < 30 / 1.5  # it was 30


def test_fewer_vectors_than_numbers_are_enough() -> None:
    vec = np.random.default_rng(0).normal(size=(6, 40)).astype(np.float32)
    white = vec @ fit_whitening(vec, np.array(list("aaabbb")))
    assert white.dtype == np.float32
    assert np.isfinite(white).all()


def test_vectors_without_a_spread_are_refused() -> None:
    with pytest.raises(DataError):
        fit_whitening(np.ones((4, 3)), np.zeros(4))
