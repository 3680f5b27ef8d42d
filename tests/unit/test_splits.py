"""Published class splits are what was published; one's own are a pure function of names and seed."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import glocal.research.data
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.embedded import embedded
from glocal.research.data.splits import PUBLISHED, check_apart, check_disjoint, published_split, seeded_split
from refusal import refused


@pytest.mark.parametrize(
    ("name", "sizes", "member"),
    [
        ("cifar-fs", (64, 16, 20), ("test", "whale")),
        ("mini-imagenet", (64, 16, 20), ("train", "n01532829")),
        ("tiered-imagenet", (351, 97, 160), ("train", "n01530575")),
        ("cub", (100, 50, 50), ("train", "001.Black_footed_Albatross")),
        ("fc100", (12, 4, 4), ("test", "people")),
    ],
)
def test_published_splits_have_the_published_sizes(name: str, sizes: tuple[int, ...], member: tuple[str, str]) -> None:
    splits = published_split(name)
    assert list(splits) == ["train", "val", "test"]
    assert tuple(len(classes) for classes in splits.values()) == sizes
    assert len(set().union(*splits.values())) == sum(sizes)
    assert member[1] in splits[member[0]]


def test_every_file_is_listed_and_an_unknown_name_is_refused() -> None:
    folder = Path(glocal.research.data.__path__[0]) / "class_lists"
    assert sorted(path.stem for path in folder.iterdir()) == sorted([*PUBLISHED, "cifar-100"])
    with refused("data", "no published split is called 'cifar'; there are cifar-fs, cub"):
        published_split("cifar")


def test_a_class_in_two_splits_is_named_with_both() -> None:
    check_disjoint({"train": ["a", "b"], "test": ["c"]})
    with refused("data", "'b' is in 'train' and again in 'test'"):
        check_disjoint({"train": ["a", "b"], "val": ["d"], "test": ["c", "b"]})
    with refused("data", "'a' is in 'train' and again in 'train'"):
        check_disjoint({"train": ["a", "a"]})


def test_seeded_split_is_pinned_and_does_not_depend_on_order() -> None:
    names = [f"class{i}" for i in range(10)]
    splits = seeded_split(names, {"train": 5, "val": 2, "test": 3}, seed=0)
    assert splits == seeded_split(reversed(names), {"train": 5, "val": 2, "test": 3}, seed=0)
    check_disjoint(splits)
    assert sorted(sum(splits.values(), ())) == names
    # Written down once: a later version that draws other classes would make old results incomparable.
    assert splits["val"] == ("class4", "class5")
    assert splits != seeded_split(names, {"train": 5, "val": 2, "test": 3}, seed=1)


@pytest.mark.parametrize(
    ("names", "counts", "words"),
    [
        ("abc", {"train": 2, "test": 2}, "asks for 4 classes, but there are only 3"),
        ("abc", {"train": 2, "test": 0}, "at least 1 class"),
        ("abc", {}, "at least 1 class"),
        ("aba", {"train": 1}, "'a' occurs twice"),
    ],
)
def test_seeded_split_refusals(names: str, counts: dict[str, int], words: str) -> None:
    with refused("data", words):
        seeded_split(names, counts)


def of_arrays(name: str, classes: str, images: np.ndarray) -> ClassDataset:
    return ClassDataset.from_arrays(images, list(classes), name=name)


def test_a_shared_class_is_an_error_and_shared_pictures_are_named() -> None:
    images = np.random.default_rng(0).integers(0, 256, (9, 8, 8, 3), dtype=np.uint8)
    train = of_arrays("train", "aabbcc", images[:6])
    assert check_apart(train, of_arrays("test", "ddd", images[6:])) == []
    copied = images[[7, 4, 6, 1]]
    assert sorted(check_apart(train, of_arrays("test", "ddde", copied))) == [
        ("images[1]", "images[3]"),
        ("images[4]", "images[1]"),
    ]
    with refused("data", "train and test share 2 classes, such as 'b'"):
        check_apart(train, of_arrays("test", "cdb", images[6:]))
    for a, b in combinations([embedded(split, per_class=1) for split in ("train", "val", "test")], 2):
        assert check_apart(a, b) == []
