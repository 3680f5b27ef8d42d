"""Rendered pictures of parts: the same again, and each class alike but for light and place."""

from __future__ import annotations

import numpy as np
import pytest

from scenes import PARTS, scene


@pytest.mark.parametrize("name", PARTS)
def test_a_picture_follows_from_its_number_and_shows_something(name: str) -> None:
    first, again, other = (np.asarray(scene(PARTS[name], 48, np.random.default_rng(i))) for i in (1, 1, 2))
    assert first.shape == (48, 48, 3)
    assert np.array_equal(first, again)
    assert np.abs(first.astype(int) - other).mean() > 5
    assert first.std() > 10
