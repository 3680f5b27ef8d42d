"""Every packing of a data set is the same data set."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import packings
from glocal.common.errors import DataError
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.packings import Packing, recognise
from glocal.research.data.prepare import prepare
from glocal.research.data.prepared import PreparedIndex, open_prepared
from glocal.research.data.splits import CIFAR100, PUBLISHED, SUPERCLASSES, published_classes, published_split
from packings import NUMBERED, PACKINGS, PER_CLASS, Content, by_class, by_split, flat, make_content
from pictures import png, write_file

CONTENT = {name: make_content(name) for name in PUBLISHED}
VARIANTS = {
    "mini-imagenet: cache pickles": "cache-pickle",
    "mini-imagenet: five category split pickles": "32px-pickle",
    "mini-imagenet: images and csv": "32px-files",
    "tiered-imagenet: npz of images and pickles of labels": "32px-array",
    "tiered-imagenet: pickles of PNG and of labels": "32px-png",
    "cifar-fs: cifar-100-python": "32px",
    "fc100: folders of superclasses": "32px",
    "cub: CUB_200_2011": "32px-files",
}


def prepared(packing: Packing, target: Path) -> PreparedIndex:
    return prepare(target, packing.splits, name=packing.dataset, packing=packing.words, key=packing.key)


def of_arrays(classes: dict[str, np.ndarray]) -> ClassDataset:
    return ClassDataset.from_arrays(*flat(classes))


@pytest.mark.parametrize("form", PACKINGS)
def test_every_packing_is_the_same_data_set(tmp_path: Path, form: str) -> None:
    name = form.partition(":")[0]
    content = CONTENT[name]
    found = recognise(name, PACKINGS[form](tmp_path / "in", content))
    index = prepared(found, tmp_path / "out")
    assert (found.dataset, [*found.splits]) == (name, ["train", "val", "test"])
    for split, classes in content.items():
        expected = of_arrays(classes)
        assert index.splits[split].manifest == expected.manifest
        assert index.splits[split].counts == tuple(PER_CLASS for _ in classes)
        assert found.counts is not None
        assert found.counts[split] == PER_CLASS * len(classes)
        if form in NUMBERED:
            assert all(each.startswith(f"{split}-") for each in index.splits[split].classes)
            assert "bare numbers" in found.words
        else:
            assert index.splits[split].classes == expected.classes
    assert f"only 3 of {len(published_classes(name)['train'])} train" in found.words
    assert found.variant == VARIANTS.get(form, found.variant)


def test_the_same_pictures_make_cifar_fs_and_fc100_also_undivided(tmp_path: Path) -> None:
    folder = by_split(tmp_path / "in", CONTENT["cifar-fs"])
    home = {name: split for split, names in published_classes("fc100").items() for name in names}
    found = recognise("fc100", folder)
    index = prepared(found, tmp_path / "out")
    every = [name for classes in CONTENT["cifar-fs"].values() for name in classes]
    for split, record in index.splits.items():
        assert set(record.classes) == {name for name in every if home[name] == split}
    assert sum(record.total for record in index.splits.values()) == PER_CLASS * len(every)
    pixels = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 3), dtype=np.uint8)
    folder = by_class(tmp_path / "cifar", {"": dict.fromkeys(CIFAR100, pixels)})
    assert recognise("cifar-fs", folder).counts == {"train": 64, "val": 16, "test": 20}
    assert recognise("fc100", folder).counts == {"train": 60, "val": 20, "test": 20}


def test_pictures_of_many_sizes_are_the_original_ones(tmp_path: Path) -> None:
    sizes = {f"n0153282{i}": np.zeros((1, 8, 8 + i, 3), np.uint8) for i in range(3)}
    folder = by_class(tmp_path / "sizes", {"": sizes})
    for old, new in zip(sorted(folder.iterdir()), published_classes("mini-imagenet")["train"][:3], strict=True):
        old.rename(folder / new)
    assert recognise("mini-imagenet", folder).variant == "original-jpeg"
    alone = PACKINGS["mini-imagenet: cache pickles"](tmp_path / "cache", CONTENT["mini-imagenet"])
    found = recognise("mini-imagenet", alone / "mini-imagenet-cache-val.pkl")
    assert (found.counts, [*found.splits]) == ({"val": 2 * PER_CLASS}, ["val"])
    assert "only 0 of 64 train, 2 of 16 val, 0 of 20 test classes" in found.words


def test_tiered_imagenet_from_the_folders_of_imagenet(tmp_path: Path) -> None:
    pixels = np.zeros((1, 8, 8, 3), np.uint8)
    content = {"": {**dict.fromkeys(("n00000001", "n00000002"), pixels)}, **CONTENT["tiered-imagenet"]}
    found = recognise("tiered-imagenet", by_class(tmp_path, content))
    assert found.counts == {split: PER_CLASS * n for split, n in packings.CLASSES.items()}
    assert "2 classes that tiered-imagenet does not have were left out" in found.words


def test_superclasses_as_published() -> None:
    """Fine label -> coarse label, as the coarse labels of CIFAR-100's batches are."""
    coarse = "4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11"
    home = {name: i for i, names in enumerate(SUPERCLASSES.values()) for name in names}
    assert [home[name] for name in CIFAR100[:32]] == [*map(int, coarse.split())]
    assert set(CIFAR100) == {name for names in published_split("cifar-fs").values() for name in names}
    assert [len(names) for names in published_classes("fc100").values()] == [60, 20, 20]


OWN: Content = {"": {f"kind {i}": np.random.default_rng(i).integers(0, 256, (2, 8, 9, 3), np.uint8) for i in range(9)}}


def own_csv(root: Path, *, split: bool = False) -> Path:
    lines = ["split,class,path"] if split else ["filename,label"]
    for i, (name, pictures) in enumerate(OWN[""].items()):
        for j, pixels in enumerate(pictures):
            write_file(root / "pictures" / f"{i} {j}.png", png(pixels))
            where = f"pictures/{i} {j}.png"
            lines.append(f"{('train', 'valid', 'test')[i % 3]},{name},{where}" if split else f"{where},{name}")
    write_file(root / "list.csv", "\n".join(lines).encode())
    return root / "list.csv"


def test_ones_own_classes_are_divided_by_a_seed(tmp_path: Path) -> None:
    folder = by_class(tmp_path / "folder", OWN)
    table = own_csv(tmp_path / "table")
    forms = [folder, packings.zipped(folder), packings.tarred(folder, "x"), table, table.parent]
    indices = [prepared(recognise("mine", form), tmp_path / f"out{i}") for i, form in enumerate(forms)]
    divided = {split: set(record.classes) for split, record in indices[0].splits.items()}
    assert {split: len(classes) for split, classes in divided.items()} == {"train": 5, "val": 2, "test": 2}
    assert set.union(*divided.values()) == OWN[""].keys()
    for index in indices:
        assert index.name == "mine"
        assert {s: r.manifest for s, r in index.splits.items()} == {s: r.manifest for s, r in indices[0].splits.items()}
        assert {s: set(r.classes) for s, r in index.splits.items()} == divided
    assert len(open_prepared(tmp_path / "out3", "train")) == 10
    again, other = recognise("mine", folder), recognise("mine", folder, seed=1)
    assert {sample.class_name for sample in again.splits["train"]()} == divided["train"]
    assert {sample.class_name for sample in other.splits["train"]()} != divided["train"]
    assert again.key == recognise("mine", folder).key != other.key
    assert again.variant == "own"
    assert recognise("mine", folder, shares=(0.5, 0, 0.5)).counts in (
        {"train": 10, "test": 8},
        {"train": 8, "test": 10},
    )


def test_ones_own_splits_are_taken_as_they_are_and_shares_must_be_shares(tmp_path: Path) -> None:
    names = [*OWN[""]]
    content = {s: {name: OWN[""][name] for name in names[i::3]} for i, s in enumerate(("train", "val", "test"))}
    folder = by_split(tmp_path / "folder", content)
    for i, form in enumerate((folder, packings.zipped(folder), own_csv(tmp_path / "table", split=True))):
        index = prepared(recognise("mine", form), tmp_path / f"out{i}")
        for split, classes in content.items():
            assert index.splits[split].manifest == of_arrays(classes).manifest
            assert set(index.splits[split].classes) == classes.keys()
    folder = by_class(tmp_path / "classes", OWN)
    for shares in ((0.5, 0.5, 0.5), (0, 0.5, 0.5), (1.5, -0.5, 0)):
        with pytest.raises(DataError, match="three numbers that add up to 1"):
            recognise("own", folder, shares=shares)


def test_another_input_has_another_key(tmp_path: Path) -> None:
    folder = by_class(tmp_path / "folder", OWN)
    table = own_csv(tmp_path / "table")
    before = recognise("mine", folder).key, recognise("mine", table).key
    os.utime(next(folder.rglob("*.png")), (1, 1))
    os.utime(next((tmp_path / "table").rglob("*.png")), (1, 1))
    after = recognise("mine", folder).key, recognise("mine", table).key
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_damaged_picture_in_a_zip_can_be_left_out(tmp_path: Path) -> None:
    archive = packings.zipped(by_class(tmp_path / "in", OWN))
    data = bytearray(archive.read_bytes())
    at = data.index(b"\x89PNG") + 60
    data[at] ^= 0xFF
    archive.write_bytes(data)
    found = recognise("mine", archive)
    with pytest.raises(DataError, match="its entry is damaged; pack it again"):
        prepare(tmp_path / "out", found.splits, name="mine", packing=found.words, key=found.key)
    index = prepare(tmp_path / "out", found.splits, name="mine", packing="", key="", skip_bad=True)
    assert sum(len(record.skipped) for record in index.splits.values()) == 1


def test_the_real_cifar_fs_is_recognised() -> None:
    folder = Path(os.environ.get("GLOCAL_DATA", "")) / "cifar-fs"
    if not (folder / "train").is_dir():
        pytest.skip("there is no folder cifar-fs below GLOCAL_DATA")
    assert recognise("cifar-fs", folder).counts == {"train": 38_400, "val": 9_600, "test": 12_000}
    assert recognise("fc100", folder).counts == {"train": 36_000, "val": 12_000, "test": 12_000}
