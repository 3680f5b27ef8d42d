"""The prepared form: the same data set as its source, checked when opened, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from faults import disk_of
from glocal.research.data import open_dataset
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.prepare import prepare, work_folder
from glocal.research.data.prepared import is_prepared, open_prepared, read_index
from packings import zipped
from pictures import png, write_file
from refusal import refused

Pixels = np.ndarray
SPLITS = {"train": "abc", "val": "de", "test": "fgh"}


def pictures(n: int, *, seed: int = 0, height: int = 8, width: int = 9) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (n, height, width, 3), dtype=np.uint8)


def folders(root: Path, *, per_class: int = 4, splits: dict[str, str] = SPLITS) -> Path:
    for split, classes in splits.items():
        for name in classes:
            for i, pixels in enumerate(pictures(per_class, seed=ord(name))):
                write_file(root / split / name / f"{i}.png", png(pixels))
    return root


def assert_same(a: ClassDataset, b: ClassDataset) -> None:
    assert (a.manifest, a.classes) == (b.manifest, b.classes)
    np.testing.assert_array_equal(a.label, b.label)
    np.testing.assert_array_equal(a.digest, b.digest)
    assert all(np.array_equal(a.same_image(i), b.same_image(i)) for i in range(len(a)))


def test_pictures_of_any_size_are_those_of_the_folder(tmp_path: Path) -> None:
    source = folders(tmp_path / "in")
    write_file(source / "train" / "a" / "copy.png", (source / "train" / "a" / "0.png").read_bytes())
    write_file(source / "train" / "b" / "wide.png", png(pictures(1, width=30)[0]))
    write_file(source / "train" / "c" / "large.png", large := png(pictures(1, height=129, width=128)[0]))
    index = prepare(tmp_path / "out", "toy", source)
    for split in SPLITS:
        assert_same(open_prepared(tmp_path / "out", split), ClassDataset.from_folder(source, inside=split))
    assert (index, index.name, index.packing) == (
        read_index(tmp_path / "out"),
        "toy",
        "class folders in train, val, test",
    )
    assert large in (tmp_path / "out" / "train.images.bin").read_bytes()  # it stays the file it was
    assert (tmp_path / "out" / "val.images.bin").stat().st_size == 2 * 4 * 8 * 9 * 3
    assert not list(tmp_path.glob(".*"))


def test_the_registry_opens_it_by_path_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = folders(tmp_path / "in")
    prepare(tmp_path / "toy", "toy", source)
    assert_same(open_dataset(tmp_path / "toy", "test"), ClassDataset.from_folder(source, inside="test"))
    monkeypatch.setenv("GLOCAL_DATA", str(tmp_path))
    monkeypatch.chdir("/")
    assert open_dataset("toy", "train").name == "toy/train"
    with refused("no-such-split", "divided into train, val, test; ask for one of these splits, got 'all'"):
        open_dataset("toy", "all")


def test_a_foreign_index_json_is_nobodys_business(tmp_path: Path) -> None:
    for name in "ab":
        write_file(tmp_path / name / "1.png", png(pictures(1)[0]))
    (tmp_path / "index.json").write_text('{"format": 1}')
    assert not is_prepared(tmp_path)
    assert len(open_dataset(tmp_path, "all")) == 2


def test_damage_is_told_when_opening_or_reading(tmp_path: Path) -> None:
    prepare(tmp_path / "toy", "toy", folders(tmp_path / "in"))
    for name in ("train.images.bin", "train.tables.npz"):
        path = tmp_path / "toy" / name
        whole = path.read_bytes()
        for damaged in (whole[:-1], whole + b"x", b""):
            path.write_bytes(damaged)
            with refused("damaged", f"{name} is not as it was prepared: "):
                open_prepared(tmp_path / "toy", "train")
        path.unlink()
        with refused("damaged", "cannot be read (No such file"):
            open_prepared(tmp_path / "toy", "train")
        path.write_bytes(whole)
    pixels = bytearray((tmp_path / "toy" / "train.images.bin").read_bytes())
    pixels[2 * 8 * 9 * 3] ^= 1
    (tmp_path / "toy" / "train.images.bin").write_bytes(pixels)
    data = open_prepared(tmp_path / "toy", "train")
    with refused("picture-changed", "images.bin[2]"):
        data.same_image(int(np.flatnonzero(data.position == 2)[0]))


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("splits.train.counts", {"counts": ["4", "4", "4"]}),
    ("splits.train.counts", {"counts": [4.0, 4.0, 4.0]}),
    ("splits.train.classes", {"classes": "abc"}),
    ("splits.train.manifest", {"manifest": "x"}),
    ("splits.train.tables", {"tables": "../../secret"}),
    ("splits.train.skipped", {"skipped": [[1, 2]]}),
    ("splits.train.more", {"more": 1}),
    ("tables do not belong to the index", {"counts": [4, 4, 3]}),
    ("tables do not belong to the index", {"classes": ["a", "b"]}),
    ("kind", {"kind": "another program's"}),
    ("format", {"format": 1}),
    ("name", {"name": 3}),
    ("packing", {"packing": None}),
]


def test_a_wrong_index_is_refused_with_the_field(tmp_path: Path) -> None:
    prepare(tmp_path / "toy", "toy", folders(tmp_path / "in"))
    path = tmp_path / "toy" / "index.json"
    whole = path.read_text()
    for words, change in WRONG:
        index = json.loads(whole)
        for name, value in change.items():
            (index if name in index else index["splits"]["train"])[name] = value
        path.write_text(json.dumps(index))
        with refused("damaged", " is not as it was prepared: ", words):
            open_prepared(tmp_path / "toy", "train")
            pytest.fail(f"{change} was read")
    index = json.loads(whole)
    index["splits"]["../up"] = index["splits"].pop("val")  # files outside of the folder cannot be named
    for text in (whole[:-50], whole[:60], json.dumps(index)):
        path.write_text(text)
        with refused("damaged", "index.json is not as it was prepared"):
            open_dataset(tmp_path / "toy", "train")


def none_left(tmp_path: Path, source: Path, *words: str, skip_bad: bool = False) -> None:
    """Refused in one sentence, and nothing is left."""
    target = tmp_path / "deep" / "target"
    with refused("data", *words):
        prepare(target, "toy", source, skip_bad=skip_bad)
    assert not target.parent.exists() or not [*target.parent.iterdir()]


def test_bad_pictures_are_refused_or_left_out(tmp_path: Path) -> None:
    good = png(pictures(1)[0])
    for name, content, words in (
        ("text", b"no picture", "its content is not"),
        ("cut", good[:60], "damaged"),
        ("small", png(pictures(1, height=4)[0]), "each side must have at least 8"),
    ):
        source = folders(tmp_path / name)
        (source / "val" / "d" / f"{name}.png").write_bytes(content)
        none_left(tmp_path, source, f"{name}.png", words)
        prepare(tmp_path / f"{name} out", "toy", source, skip_bad=True)
        data = open_prepared(tmp_path / f"{name} out", "val")
        assert data.manifest == ClassDataset.from_folder(source, inside="val", skip_bad=True).manifest
        assert [Path(each.where).stem for each in data.skipped] == [name]


def test_input_that_makes_no_data_set(tmp_path: Path) -> None:
    none_left(
        tmp_path, folders(tmp_path / "twice", splits={"train": "ab", "test": "bc"}), "'b' is in 'train' and again"
    )
    (tmp_path / "empty").mkdir()
    none_left(tmp_path, tmp_path / "empty", "no pictures and no class folders")
    source = folders(tmp_path / "bad")
    for path in (source / "val" / "e").iterdir():
        path.write_bytes(b"x")
    none_left(tmp_path, source, "class 'e' has no usable image", skip_bad=True)
    none_left(tmp_path, tmp_path / "absent", "there is no such file or folder")
    lost = folders(tmp_path / "lost")
    (lost / "val" / "d" / "link.png").symlink_to(tmp_path / "nowhere.png")
    none_left(tmp_path, lost, "link.png", "must be a regular file")
    (tmp_path / "cut.zip").write_bytes(zipped(folders(tmp_path / "whole")).read_bytes()[:-40])
    none_left(tmp_path, tmp_path / "cut.zip", "neither a folder nor a zip or tar")


def test_nothing_is_overwritten_and_only_one_process_prepares(tmp_path: Path) -> None:
    source = folders(tmp_path / "in")
    prepare(tmp_path / "toy", "toy", source)
    before = {path: path.read_bytes() for path in (tmp_path / "toy").iterdir()}
    with refused("exists", "toy holds a prepared data set already"):
        prepare(tmp_path / "toy", "toy", folders(tmp_path / "other", per_class=2))
    assert before == {path: path.read_bytes() for path in (tmp_path / "toy").iterdir()}
    (tmp_path / "empty").mkdir()
    with refused("exists", "empty exists already"):
        prepare(tmp_path / "empty", "toy", source)
    work = work_folder(tmp_path / "busy")
    work.mkdir()
    with FileLock(work / "lock"), refused("busy", str(tmp_path / "busy")):
        prepare(tmp_path / "busy", "toy", source)
    prepare(tmp_path / "busy", "toy", source)


@pytest.mark.parametrize("form", [lambda folder: folder, zipped])
def test_an_interrupted_job_goes_on_after_the_last_finished_split(tmp_path: Path, form: Callable[[Path], Path]) -> None:
    source = form(folders(tmp_path / "in"))
    prepare(tmp_path / "undisturbed", "toy", source)
    folder, read = tmp_path / "toy", list[tuple[str, int]]()

    def report(split: str, done: int, *, total: int) -> None:
        read.append((split, done))
        if (split, done) == stop:
            raise KeyboardInterrupt

    def interrupted(seed: int = 0) -> list[tuple[str, int]]:
        read.clear()
        with pytest.raises(KeyboardInterrupt):
            prepare(folder, "toy", source, seed=seed, progress=report)
        assert not folder.exists()
        return read[:2]

    stop = ("val", 3)
    assert interrupted() == [("train", 1), ("train", 2)]
    assert interrupted() == [("train", 12), ("val", 1)]
    assert interrupted(seed=1) == [("train", 1), ("train", 2)]  # another job
    assert interrupted() == [("train", 1), ("train", 2)]
    (work_folder(folder) / "data" / "train.tables.npz").write_bytes(b"")
    assert interrupted() == [("train", 1), ("train", 2)]
    stop = ("", 0)
    read.clear()
    prepare(folder, "toy", source, progress=report)
    assert read[:2] == [("train", 12), ("val", 1)]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {
        p.name: p.read_bytes() for p in (tmp_path / "undisturbed").iterdir()
    }
    assert not work_folder(folder).exists()


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    source = folders(tmp_path / "in")
    for i in range(60):
        write_file(source / "val" / "d" / f"large{i}.png", png(pictures(1, seed=i, height=128, width=128)[0]))
    with disk_of(1 << 21):
        none_left(tmp_path, source, "data set 'toy' cannot be prepared in ", "(File too large); free some space")
