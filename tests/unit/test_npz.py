"""Arrays in an npz by blocks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from glocal.common.errors import DataError
from glocal.research.data.npz import npz_names, open_npz_array
from refusal import refused

PIXELS = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), np.uint8)


def read_all(path: Path) -> np.ndarray:
    return np.concatenate(list(open_npz_array(path, "images").blocks()))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_blocks_of_rows(tmp_path: Path, save) -> None:
    path = tmp_path / "train_images.npz"
    save(path, images=PIXELS, labels=np.arange(50, dtype=">i8"))
    assert npz_names(path) == ["images", "labels"]
    array = open_npz_array(path, "images")
    assert (array.shape, array.dtype, len(array)) == ((50, 8, 8, 3), np.uint8, 50)
    blocks = list(array.blocks(max_bytes=7 * 192))
    assert [len(block) for block in blocks] == [7] * 7 + [1]
    np.testing.assert_array_equal(np.concatenate(blocks), PIXELS)
    assert open_npz_array(path, "labels").read().tolist() == list(range(50))


def test_an_empty_array_and_text(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", none=np.empty((0, 3)), names=np.array(["cat", "é"]), one=np.array(3))
    assert open_npz_array(tmp_path / "a.npz", "none").read().shape == (0, 3)
    assert open_npz_array(tmp_path / "a.npz", "names").read().tolist() == ["cat", "é"]
    with refused("data", "must have rows"):
        open_npz_array(tmp_path / "a.npz", "one")


def test_a_large_array_is_not_read_at_once(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", images=PIXELS)
    array = open_npz_array(tmp_path / "a.npz", "images")
    with refused("data", "too large", "blocks()"):
        replace(array, shape=(1 << 30, 8, 8, 3)).read()
    with refused("data", "has no array 'pictures', but images"):
        open_npz_array(tmp_path / "a.npz", "pictures")
    with refused("data", "no such file"):
        open_npz_array(tmp_path, "images")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_flipped_byte_gives_the_right_array_or_a_sentence(tmp_path: Path, save) -> None:
    save(tmp_path / "a.npz", images=PIXELS)
    content = (tmp_path / "a.npz").read_bytes()
    outcomes = set()
    for at in [*range(0, 240, 2), *range(300, len(content), 97), *range(len(content) - 90, len(content))]:
        damaged = bytearray(content)
        damaged[at] ^= 0x11
        (tmp_path / "b.npz").write_bytes(damaged)
        try:
            found = read_all(tmp_path / "b.npz")
        except DataError:
            outcomes.add("refused")
        else:
            np.testing.assert_array_equal(found, PIXELS)
            outcomes.add("right")
    assert outcomes == {"refused", "right"}
