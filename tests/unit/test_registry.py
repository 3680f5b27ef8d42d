"""open_dataset: a registered name, a folder below GLOCAL_DATA, or any folder; and what to do when it is none."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from glocal.research.data import SPLITS, open_dataset
from pictures import write_classes
from refusal import refused


def zipped(folder: Path, target: Path) -> Path:
    return Path(shutil.make_archive(str(target), "zip", folder))


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
    with refused("no-such-split", "divided into train, val, test; ask for one of these splits, got 'all'"):
        open_dataset(divided, "all")
    shutil.rmtree(divided / "val")  # without validation classes it is still divided
    assert sorted(open_dataset(divided, "test").classes) == ["test-a", "test-b"]
    for split, way_out in (("val", "give it a folder val"), ("all", "got 'all'")):  # training asks for val by itself
        with refused("no-such-split", "divided into train, test", way_out):
            open_dataset(divided, split)


def test_a_plain_folder_of_classes_opens_as_a_whole(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "vehicles", "bus", "train")  # a class may be called like a split
    assert sorted(open_dataset(str(folder), "all").classes) == ["bus", "train"]
    with refused("no-such-split", "vehicles is not divided", "no split 'test'", "use --split all"):
        open_dataset(folder, "test")


def test_names_are_looked_up_below_glocal_data(divided: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOCAL_DATA", raising=False)
    with refused("no-such-dataset", "'birds' is none of those by name", "embedded", "GLOCAL_DATA (not set)"):
        open_dataset("birds", "val")
    monkeypatch.setenv("GLOCAL_DATA", str(divided.parent))
    assert open_dataset("birds", "val").name == "birds/val"
    with refused("no-such-dataset", "fish"):
        open_dataset("fish", "val")


def test_a_zip_is_opened_like_the_folder_it_was_made_of(divided: Path, tmp_path: Path) -> None:
    archive, flat = zipped(divided, tmp_path / "packed"), zipped(divided / "val", tmp_path / "flat")
    assert open_dataset(archive, "val").manifest == open_dataset(divided, "val").manifest
    assert open_dataset(flat, "all").manifest == open_dataset(divided, "val").manifest
    with refused("no-such-split", "packed.zip is divided into train, val, test", "'all'"):
        open_dataset(archive, "all")
    with refused("no-such-split", "flat.zip is not divided", "'test'"):
        open_dataset(flat, "test")


@pytest.mark.parametrize("packed", [False, True])
def test_a_lone_folder_around_everything_is_stepped_into(divided: Path, tmp_path: Path, packed: bool) -> None:
    """What macOS and Windows make of a folder: photos.zip with photos/ in it, and photos/photos when unpacked."""

    def wrapped(folder: Path, name: str) -> Path:
        shutil.copytree(folder, tmp_path / name / "outer" / "photos")
        (tmp_path / name / "outer" / "README.txt").write_text("notes")
        (tmp_path / name / ".DS_Store").touch()
        return zipped(tmp_path / name, tmp_path / name) if packed else tmp_path / name

    whole, plain = wrapped(divided, "whole"), wrapped(divided / "val", "plain")
    assert open_dataset(plain, "all").manifest == open_dataset(divided, "val").manifest
    assert open_dataset(plain, "all").ignored == 1
    for part in SPLITS:
        assert sorted(open_dataset(whole, part).classes) == [f"{part}-a", f"{part}-b"]
    with refused("no-such-split", "whole", "is divided into train, val, test"):
        open_dataset(whole, "all")


@pytest.mark.parametrize("packed", [False, True])
def test_a_lone_class_is_no_wrapper(tmp_path: Path, packed: bool) -> None:
    folder = write_classes(tmp_path / "one", "cat")
    write_classes(folder / "cat", "old", seed=1)
    opened = open_dataset(zipped(folder, tmp_path / "one") if packed else folder, "all")
    assert (opened.classes, len(opened)) == (("cat",), 4)


def test_a_csv_is_one_list(divided: Path, tmp_path: Path) -> None:
    rows = [f"{path},{path.parent.name}" for path in sorted((divided / "val").rglob("*.png"))]
    (tmp_path / "list.csv").write_text("filename,label\n" + "\n".join(rows))
    assert open_dataset(tmp_path / "list.csv", "all").manifest == open_dataset(divided, "val").manifest
    with refused("no-such-split", "'test'"):
        open_dataset(tmp_path / "list.csv", "test")
    (tmp_path / "list.txt").write_text("")
    with refused("data", "list.txt", "neither a folder"):
        open_dataset(tmp_path / "list.txt", "all")


def test_caltech_photos_are_divided_by_the_hash_of_their_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOCAL_DATA", raising=False)
    with refused("data", "GLOCAL_DATA (not set)"):
        open_dataset("caltech-photos", "test")
    monkeypatch.setenv("GLOCAL_DATA", str(tmp_path))
    names = [f"class {c}" for c in range(100)]
    write_classes(tmp_path / "caltech-photos", *names[:3], per_class=1)
    with refused("data", "has 100 classes, but", "has 3"):
        open_dataset("caltech-photos", "test")
    write_classes(tmp_path / "caltech-photos", *names[3:], per_class=1, seed=1)
    ranked = sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    for split, part in {"train": ranked[:60], "val": ranked[60:75], "test": ranked[75:]}.items():
        assert set(open_dataset("caltech-photos", split).classes) == set(part)
    (tmp_path / "caltech-photos" / "class 0" / "bad.jpg").write_bytes(b"no picture")
    with refused("bad-pictures", "bad.jpg"):
        open_dataset("caltech-photos", "test")
    assert len(open_dataset("caltech-photos", "test", skip_bad=True).skipped) == 1
