"""Every layout of a published data set is the same data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packings
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.prepare import prepare, recognise
from glocal.research.data.prepared import open_prepared
from glocal.research.data.splits import CIFAR100, PUBLISHED, SUPERCLASSES, published_classes, published_split
from packings import NUMBERED, PACKINGS, PER_CLASS, Content, by_class, by_split, dump, flat, make_content
from pictures import write_file
from refusal import refused

CONTENT = {name: make_content(name) for name in PUBLISHED}
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), np.uint8)
VARIANTS = {
    "mini-imagenet: cache pickles": "cache-pickle",
    "mini-imagenet: five category split pickles": "32px-pickle",
    "mini-imagenet: images and csv": "32px-files",
    "tiered-imagenet: npz of images and pickles of labels": "32px-array",
    "tiered-imagenet: pickles of PNG and of labels": "32px-png",
    "cifar-fs: cifar-100-python": "32px",
    "cub: CUB_200_2011": "32px-files",
}


def of_arrays(classes: dict[str, np.ndarray]) -> ClassDataset:
    return ClassDataset.from_arrays(*flat(classes))


@pytest.mark.parametrize("form", PACKINGS)
def test_every_layout_is_the_same_data_set(tmp_path: Path, form: str) -> None:
    name = form.partition(":")[0]
    content = CONTENT[name]
    index = prepare(tmp_path / "out", name, PACKINGS[form](tmp_path / "in", content))
    assert (index.name, {*index.splits}) == (name, {"train", "val", "test"})
    for split, classes in content.items():
        expected = of_arrays(classes)
        assert index.splits[split].manifest == expected.manifest
        assert index.splits[split].counts == [PER_CLASS for _ in classes]
        if form in NUMBERED:
            assert all(each.startswith(f"{split}-") for each in index.splits[split].classes)
            assert "bare numbers" in index.packing
        else:
            assert tuple(index.splits[split].classes) == expected.classes
    assert f"only 3 of {len(published_classes(name)['train'])} train" in index.packing
    assert index.variant == VARIANTS.get(form, index.variant)
    assert not [*tmp_path.glob(".out*")]


def test_the_published_list_divides_named_classes_however_their_folders_are(tmp_path: Path) -> None:
    folder = by_split(tmp_path / "in", CONTENT["cifar-fs"])
    home = {name: split for split, names in published_classes("fc100").items() for name in names}
    index = prepare(tmp_path / "out", "fc100", folder)
    every = [name for classes in CONTENT["cifar-fs"].values() for name in classes]
    for split, record in index.splits.items():
        assert set(record.classes) == {name for name in every if home[name] == split}
    assert sum(record.total for record in index.splits.values()) == PER_CLASS * len(every)
    folder = by_class(tmp_path / "cifar", {"": dict.fromkeys(CIFAR100, PIXELS[:1])})
    assert recognise("cifar-fs", folder).counts == {"train": 64, "val": 16, "test": 20}
    assert recognise("fc100", folder).counts == {"train": 60, "val": 20, "test": 20}


def test_pictures_of_many_sizes_are_the_original_ones(tmp_path: Path) -> None:
    names = published_classes("mini-imagenet")["train"][:3]
    sizes = {name: np.zeros((1, 8, 8 + i, 3), np.uint8) for i, name in enumerate(names)}
    assert recognise("mini-imagenet", by_class(tmp_path / "sizes", {"": sizes})).variant == "original-jpeg"
    alone = PACKINGS["mini-imagenet: cache pickles"](tmp_path / "cache", CONTENT["mini-imagenet"])
    for split in ("train", "test"):
        (alone / f"mini-imagenet-cache-{split}.pkl").unlink()
    part = recognise("mini-imagenet", alone)
    assert part.counts == {"val": 2 * PER_CLASS}
    assert "only 0 of 64 train, 2 of 16 val, 0 of 20 test classes" in part.words


def test_tiered_imagenet_from_the_folders_of_imagenet(tmp_path: Path) -> None:
    content = {"": dict.fromkeys(("n00000001", "n00000002"), PIXELS[:1]), **CONTENT["tiered-imagenet"]}
    part = recognise("tiered-imagenet", by_class(tmp_path, content))
    assert part.counts == {split: PER_CLASS * n for split, n in packings.CLASSES.items()}
    assert "2 classes that tiered-imagenet does not have were left out" in part.words


def test_two_classes_of_one_name_are_told_apart_by_number(tmp_path: Path) -> None:
    """ImageNet has a crane that flies and one that lifts."""
    root = PACKINGS["tiered-imagenet: pickles of PNG and of labels"](tmp_path / "in", CONTENT["tiered-imagenet"])
    labels = {"label_specific": [0, 0, 0, 1, 1, 1], "label_specific_str": ["crane", "crane"]}
    dump(root / "val_labels.pkl", labels)
    assert set(prepare(tmp_path / "out", "tiered-imagenet", root).splits["val"].classes) == {"val-000", "val-001"}


def test_superclasses_as_published() -> None:
    """Fine label -> coarse label, as the coarse labels of CIFAR-100's batches are."""
    coarse = "4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11"
    home = {name: i for i, names in enumerate(SUPERCLASSES.values()) for name in names}
    assert [home[name] for name in CIFAR100[:32]] == [*map(int, coarse.split())]
    assert set(CIFAR100) == {name for names in published_split("cifar-fs").values() for name in names}
    assert [len(names) for names in published_classes("fc100").values()] == [60, 20, 20]


OWN: Content = {"": {f"kind {i}": np.random.default_rng(i).integers(0, 256, (2, 8, 9, 3), np.uint8) for i in range(9)}}


def test_ones_own_classes_are_divided_by_a_seed(tmp_path: Path) -> None:
    folder = by_class(tmp_path / "folder", OWN)
    forms = [folder, packings.zipped(folder), packings.tarred(folder, "x")]
    indices = [prepare(tmp_path / f"out{i}", "mine", form) for i, form in enumerate(forms)]
    divided = {split: set(record.classes) for split, record in indices[0].splits.items()}
    assert {split: len(classes) for split, classes in divided.items()} == {"train": 5, "val": 2, "test": 2}
    assert set.union(*divided.values()) == OWN[""].keys()
    for index in indices:
        assert (index.name, index.variant) == ("mine", "own")
        assert {s: r.manifest for s, r in index.splits.items()} == {s: r.manifest for s, r in indices[0].splits.items()}
        assert {s: set(r.classes) for s, r in index.splits.items()} == divided
    assert len(open_prepared(tmp_path / "out2", "train")) == 10
    other = recognise("mine", folder, seed=1)
    assert {sample.class_name for sample in other.splits["train"]()} != divided["train"]
    assert recognise("mine", folder, shares=(0.5, 0, 0.5)).counts in (
        {"train": 10, "test": 8},
        {"train": 8, "test": 10},
    )
    for shares in ((0.5, 0.5, 0.5), (0, 0.5, 0.5), (1.5, -0.5, 0)):
        with refused("data", "three numbers that add up to 1"):
            recognise("own", folder, shares=shares)


def test_ones_own_splits_are_taken_as_they_are(tmp_path: Path) -> None:
    names = [*OWN[""]]
    content = {s: {name: OWN[""][name] for name in names[i::3]} for i, s in enumerate(("train", "val", "test"))}
    folder = by_split(tmp_path / "folder", content)
    for i, form in enumerate((folder, packings.zipped(folder))):
        index = prepare(tmp_path / f"out{i}", "mine", form)
        for split, classes in content.items():
            assert index.splits[split].manifest == of_arrays(classes).manifest
            assert set(index.splits[split].classes) == classes.keys()


def pickles(root: Path, values: dict[str, Any]) -> Path:
    for name, value in values.items():
        dump(root / name, value)
    return root


def pickled(**changed: object) -> dict[str, Any]:
    return {"train.pickle": {"data": PIXELS, "labels": ["a"] * 3 + ["b"] * 3, **changed}}


_BATCH = {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [0, 1]}
_OUTSIDE = {**_BATCH, "fine_labels": [0, 100]}
WRONG: list[tuple[str, str, dict[str, Any]]] = [
    ("mine", "there are 6 images and 5 labels", pickled(labels=["a"] * 5)),
    ("mine", "a label must be a name or a whole number from 0, got a NoneType", pickled(labels=[None] * 6)),
    ("mine", "it must hold images", {"train.pickle": {"a": 1}}),
    ("mine", "features of a network are not images", pickled(data=np.zeros((6, 640), np.float32))),
    ("mine", "each side must have at least 8 pixels", pickled(data=PIXELS[:, :4])),
    ("mine", "its content is not a picture", pickled(data=[b"no picture" * 200] * 6)),
    ("mine", "must list rows of its own in 0..5, got 6", pickled(data=PIXELS, class_dict={"a": [6]})),
    ("mine", "image 1 is in no class", pickled(data=PIXELS, class_dict={"a": [0]})),
    ("mine", "needs one file of images, and here are 0", {"train_labels.pkl": {"labels": [1]}}),
    ("mine", "needs one file of labels, and there are 0", {"train.pickle": {"data": PIXELS}}),
    ("mine", "'a' is in 'train' and again in 'test'", {**pickled(), "test.pickle": pickled()["train.pickle"]}),
    ("mini-imagenet", "'a' is not one of the classes", pickled()),
    ("cifar-fs", "has 64 classes, and here are 70", pickled(data=PIXELS[[0] * 70], labels=[*range(70)])),
    ("cifar-fs", "a fine label must be in 0..99, got '100'", {"test": _BATCH, "train": _OUTSIDE}),
    ("cifar-fs", "must hold data (n, 3072)", {"train": {"fine_labels": [1]}, "test": _BATCH}),
]


@pytest.mark.parametrize(("name", "words", "files"), WRONG)
def test_arrays_that_contradict_themselves_are_refused(
    tmp_path: Path, name: str, words: str, files: dict[str, Any]
) -> None:
    with refused("data", words):
        prepare(tmp_path / "out", name, pickles(tmp_path / "in", files))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_lists_that_do_not_fit_their_pictures_are_refused(tmp_path: Path) -> None:
    def changed(form: str, file: str, text: str, words: str) -> None:
        name = form.partition(":")[0]
        source = PACKINGS[form](tmp_path / "in" / str(len([*tmp_path.rglob("in/*")])), CONTENT[name])
        write_file(source / file, text.encode())
        with refused("data", words):
            prepare(tmp_path / "out", name, source)

    lists = "cifar-fs: data and splits/bertinetto"
    changed(lists, "splits/bertinetto/val.txt", "dragon\n", "there is no folder of class 'dragon'")
    csv = "mini-imagenet: images and csv"
    changed(csv, "val.csv", "filename,label\nno.jpg,x\n", "line 2 names 'no.jpg', and there are 0 such images")
    first = (tmp_path / "in" / "1" / "train.csv").read_text()
    changed(csv, "val.csv", first, "which is in train.csv already")
    birds, home = "cub: CUB_200_2011", "CUB_200_2011"
    changed(birds, f"{home}/image_class_labels.txt", "1 1\n", "is not an image of class None")
    changed(birds, f"{home}/classes.txt", "1 Crow\n1 Owl\n", "a number of its own and a text")
    changed(birds, f"{home}/images.txt", "1 ../../x.png\n", "is not an image of class")
    divided = "mini-imagenet: class folders by split"
    changed(divided, "more/a/1.png", "x", "'more' is none of them")
    with refused("data", "bad\ufffd"):
        prepare(tmp_path / "out", "mine", by_class(tmp_path / "odd", {"": {**OWN[""], "bad\x1b": PIXELS}}))
