"""ImageLoader: the right pixels in the right order, from any number of workers."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from banks import dataset
from glocal.recognizer.photos.images import fit
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.loader import ImageLoader
from glocal.research.engine.features import encode
from glocal.research.types import Preprocess, normalize
from refusal import refused
from waiting import wait_for

PREPARE = Preprocess(16, 18)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for i in range(12):
        path = tmp_path / "data" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20 + i, 30 - i, 3), dtype=np.uint8)).save(path)
    return tmp_path / "data"


def expected(data: ClassDataset, indices: list[int]) -> torch.Tensor:
    return torch.stack([torch.from_numpy(fit(data.image(i), PREPARE)).permute(2, 0, 1) for i in indices])


@pytest.mark.parametrize("workers", [1, 3])
def test_an_image_that_went_bad_is_named(folder: Path, workers: int) -> None:
    data = ClassDataset.from_folder(folder)
    victim = Path(data.where(5))
    victim.write_bytes(b"not a picture any more")
    loader = ImageLoader(data, PREPARE, workers=workers)
    with refused("data", victim.name):
        loader(np.arange(12))
    batches = loader.batches(np.arange(12), 2)
    assert [next(batches)[0].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with refused("data", victim.name):
        next(batches)
    assert loader(np.array([4, 6])).shape == (2, 3, 16, 16)


def test_the_next_batch_is_decoded_while_the_caller_works() -> None:
    data = dataset()
    batches = ImageLoader(data, PREPARE).batches(np.arange(12), 4)
    next(batches)
    wait_for(lambda: {4, 5} <= set(data.read))  # nobody asked for the second batch yet
    assert max(data.read) < 8  # and not the whole data set runs ahead
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]


class Counting:
    """An encoder that notes how many pictures it gets at once, and gives their mean."""

    def __init__(self, size: int) -> None:
        self.preprocess, self.got = Preprocess(size, size), list[int]()

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        self.got.append(len(images))
        return images.mean(dim=(2, 3), keepdim=True)


@pytest.mark.parametrize(("size", "at_once"), [(260, 16), (1024, 2)])
def test_large_pictures_are_encoded_a_few_at_a_time(folder: Path, size: int, at_once: int) -> None:
    """A checkpoint says how large its images are: 32 of 1,024 pixels a side would take gigabytes."""
    encoder, data = Counting(size), ClassDataset.from_folder(folder)
    wanted = np.arange(12)
    found = list(encode(encoder, data, wanted))
    assert encoder.got == [at_once] * -(-len(wanted) // at_once)
    assert np.concatenate([indices for indices, _ in found]).tolist() == wanted.tolist()
    alone = ImageLoader(data, encoder.preprocess)(wanted)
    expected = normalize(alone, encoder.preprocess).mean(dim=(2, 3), keepdim=True)
    torch.testing.assert_close(torch.cat([maps for _, maps in found]), expected)
