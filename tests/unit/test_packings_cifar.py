"""The real pictures of CIFAR-FS: packed in four ways they are one data set, divided by superclasses they are FC100."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import packings
from glocal.data.packings import recognise
from glocal.data.prepare import prepare
from glocal.data.prepared import PreparedIndex
from glocal.data.splits import published_classes
from packings import Content

SHEETS = Path(__file__).parents[3] / "shared" / "data" / "cifar-fs"  # a class as 30 x 20 pictures in one WebP
PNG = Path(os.environ.get("GLOCAL_DATA", "")) / "cifar-fs"
FORMS: dict[str, Callable[[Path, Content], Path]] = {
    "folder": packings.by_split,
    "pickles": packings.cifar_pickles,
    "cifar-100-python": packings.cifar100_python,
}


def real(split: str, name: str) -> np.ndarray:
    """(600, 32, 32, 3) of one class, from wherever they are."""
    if (SHEETS / split / f"{name}.webp").is_file():
        with Image.open(SHEETS / split / f"{name}.webp") as sheet:
            pixels = np.asarray(sheet.convert("RGB"))
        return pixels.reshape(20, 32, 30, 32, 3).transpose(0, 2, 1, 3, 4).reshape(600, 32, 32, 3)
    folder = PNG / split / name
    if not folder.is_dir():
        pytest.skip("the pictures of CIFAR-FS are neither in ../shared/data/cifar-fs nor below GLOCAL_DATA")
    return np.stack([np.asarray(Image.open(file).convert("RGB")) for file in sorted(folder.iterdir())])


def content(per_split: int | None) -> Content:
    classes = published_classes("cifar-fs")
    return {split: {name: real(split, name) for name in names[:per_split]} for split, names in classes.items()}


def prepared(name: str, source: Path, target: Path) -> PreparedIndex:
    found = recognise(name, source)
    index = prepare(target, found.splits, name=name, packing=found.words, key=found.key)
    assert found.variant == "32px"
    assert found.counts == {split: record.total for split, record in index.splits.items()}
    shutil.rmtree(target)
    return index


@pytest.mark.parametrize("per_split", [1, pytest.param(None, marks=pytest.mark.long)])
def test_four_packings_of_the_real_pictures_are_one_data_set(tmp_path: Path, per_split: int | None) -> None:
    pictures = content(per_split)
    indices = {}
    for form, write in FORMS.items():
        indices[form] = prepared("cifar-fs", write(tmp_path / form, pictures), tmp_path / f"out {form}")
    indices["zip"] = prepared("cifar-fs", packings.zipped(tmp_path / "folder"), tmp_path / "out zip")
    records = {form: index.splits for form, index in indices.items()}
    for split, names in published_classes("cifar-fs").items():
        assert len({splits[split].manifest for splits in records.values()}) == 1
        assert {splits[split].classes for splits in records.values()} == {records["folder"][split].classes}
        assert set(records["folder"][split].classes) == set(names[:per_split])
        assert records["folder"][split].counts == (600,) * len(names[:per_split])

    fc100 = prepared("fc100", tmp_path / "folder", tmp_path / "out fc100").splits
    every = {name for classes in pictures.values() for name in classes}
    for split, names in published_classes("fc100").items():
        here = fc100[split].classes if split in fc100 else ()
        assert set(here) == every & set(names)
        assert not here or fc100[split].total == 600 * len(here)
    if per_split is None:
        assert [len(record.classes) for record in fc100.values()] == [60, 20, 20]
        whole = {
            split: {name: real_of(pictures, name) for name in names}
            for split, names in published_classes("fc100").items()
        }
        again = prepared("fc100", packings.cifar_pickles(tmp_path / "fc100", whole), tmp_path / "out fc100 pickles")
        assert {s: r.manifest for s, r in again.splits.items()} == {s: r.manifest for s, r in fc100.items()}
    for file in tmp_path.iterdir():  # pytest keeps the folders of the last runs
        shutil.rmtree(file) if file.is_dir() else file.unlink()


def real_of(pictures: Content, name: str) -> np.ndarray:
    return next(classes[name] for classes in pictures.values() if name in classes)


def test_the_whole_folder_is_recognised() -> None:
    if not PNG.is_dir():
        pytest.skip("there is no folder cifar-fs below GLOCAL_DATA")
    found = recognise(None, PNG)
    assert (found.dataset, found.counts) == ("cifar-fs", {"train": 38_400, "val": 9_600, "test": 12_000})
    assert recognise("fc100", PNG).counts == {"train": 36_000, "val": 12_000, "test": 12_000}
