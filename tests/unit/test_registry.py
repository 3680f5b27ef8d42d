"""open_dataset: a registered name, a folder below GLOCAL_DATA, or any folder; and what to do when it is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glocal.data import registry
from glocal.data.dataset import ClassDataset
from glocal.data.registry import DATASETS, SPLITS, open_dataset
from glocal_runtime.errors import DataError


def write_classes(folder: Path, *names: str, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    for name in names:
        (folder / name).mkdir(parents=True)
        for i in range(2):
            Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / name / f"{i}.png")
    return folder


@pytest.fixture
def divided(tmp_path: Path) -> Path:
    for seed, part in enumerate(SPLITS):
        write_classes(tmp_path / "birds" / part, f"{part}-a", f"{part}-b", seed=seed)
    return tmp_path / "birds"


def test_the_splits_of_a_divided_folder(divided: Path) -> None:
    for part in SPLITS:
        data = open_dataset(divided, part)
        assert data.name == f"birds/{part}"
        assert sorted(data.classes) == [f"{part}-a", f"{part}-b"]
    with pytest.raises(DataError, match="divided into train, val, test; ask for one of these splits, got 'all'"):
        open_dataset(divided, "all")


def test_a_folder_without_validation_classes_is_still_divided(tmp_path: Path) -> None:
    for seed, part in enumerate(("train", "test")):
        write_classes(tmp_path / part, "a", "b", seed=seed)
    assert sorted(open_dataset(tmp_path, "test").classes) == ["a", "b"]
    for split in ("val", "all"):
        with pytest.raises(DataError, match=f"divided into train, test; .* got '{split}'"):
            open_dataset(tmp_path, split)


def test_a_plain_folder_of_classes_opens_as_a_whole(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "vehicles", "bus", "train")  # a class may be called like a split
    assert sorted(open_dataset(str(folder), "all").classes) == ["bus", "train"]
    with pytest.raises(DataError, match=r"vehicles is not divided .* no split 'test'; use --split all"):
        open_dataset(folder, "test")


def test_names_are_looked_up_below_glocal_data(divided: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOCAL_DATA", raising=False)
    with pytest.raises(DataError, match=r"'birds' is not one of .*embedded.* GLOCAL_DATA \(not set\)"):
        open_dataset("birds", "val")
    monkeypatch.setenv("GLOCAL_DATA", str(divided.parent))
    assert open_dataset("birds", "val").name == "birds/val"
    with pytest.raises(DataError, match="no folder fish here or below GLOCAL_DATA"):
        open_dataset("fish", "val")


def test_registered_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "embedded" in DATASETS
    asked: list[str] = []

    def tiny(split: str) -> ClassDataset:
        asked.append(split)
        return ClassDataset.from_arrays(np.zeros((1, 8, 8, 3), np.uint8), ["only"])

    monkeypatch.setitem(registry.DATASETS, "tiny", tiny)
    assert open_dataset("tiny", "val").classes == ("only",)
    with pytest.raises(DataError, match="tiny has the splits train, val, test, got 'all'"):
        open_dataset("tiny", "all")
    assert asked == ["val"]


def test_bad_pictures_are_refused_or_skipped_as_asked(divided: Path) -> None:
    (divided / "val" / "val-a" / "0.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"0\.png"):
        open_dataset(divided, "val")
    data = open_dataset(divided, "val", skip_bad=True)
    assert (len(data), len(data.skipped)) == (3, 1)


def test_a_zip_is_opened_like_the_folder_it_was_made_of(divided: Path, tmp_path: Path) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", divided))
    assert open_dataset(archive, "val").manifest == open_dataset(divided, "val").manifest
    with pytest.raises(DataError, match=r"packed\.zip is divided into train, val, test; ask for one .* got 'all'"):
        open_dataset(archive, "all")
    flat = Path(shutil.make_archive(str(tmp_path / "flat"), "zip", divided / "val"))
    assert open_dataset(flat, "all").manifest == open_dataset(divided, "val").manifest
    with pytest.raises(DataError, match=r"flat\.zip is not divided .* no split 'test'; use --split all"):
        open_dataset(flat, "test")


@pytest.mark.parametrize("packed", [False, True])
def test_a_lone_folder_around_everything_is_stepped_into(divided: Path, tmp_path: Path, packed: bool) -> None:
    """What macOS and Windows make of a folder: photos.zip with photos/ in it, and photos/photos when unpacked."""

    def wrapped(folder: Path, name: str) -> Path:
        shutil.copytree(folder, tmp_path / name / "outer" / "photos")
        (tmp_path / name / "outer" / "README.txt").write_text("notes")
        (tmp_path / name / ".DS_Store").touch()
        return Path(shutil.make_archive(str(tmp_path / name), "zip", tmp_path / name)) if packed else tmp_path / name

    whole, plain = wrapped(divided, "whole"), wrapped(divided / "val", "plain")
    assert open_dataset(plain, "all").manifest == open_dataset(divided, "val").manifest
    assert open_dataset(plain, "all").ignored == packed
    for part in SPLITS:
        assert sorted(open_dataset(whole, part).classes) == [f"{part}-a", f"{part}-b"]
    with pytest.raises(DataError, match=r"whole.* is divided into train, val, test"):
        open_dataset(whole, "all")


@pytest.mark.parametrize("packed", [False, True])
def test_a_lone_class_is_no_wrapper(tmp_path: Path, packed: bool) -> None:
    folder = write_classes(tmp_path / "one", "cat")
    write_classes(folder / "cat", "old", seed=1)
    data = Path(shutil.make_archive(str(tmp_path / "one"), "zip", folder)) if packed else folder
    opened = open_dataset(data, "all")
    assert (opened.classes, len(opened)) == (("cat",), 4)


def test_a_csv_is_one_list(divided: Path, tmp_path: Path) -> None:
    rows = [f"{path},{path.parent.name}" for path in sorted((divided / "val").rglob("*.png"))]
    (tmp_path / "list.csv").write_text("filename,label\n" + "\n".join(rows))
    assert open_dataset(tmp_path / "list.csv", "all").manifest == open_dataset(divided, "val").manifest
    with pytest.raises(DataError, match="no split 'test'; use --split all"):
        open_dataset(tmp_path / "list.csv", "test")
    (tmp_path / "list.txt").write_text("")
    with pytest.raises(DataError, match="neither a folder of class folders, nor a"):
        open_dataset(tmp_path / "list.txt", "all")
