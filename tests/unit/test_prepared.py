"""The prepared form: the same data set as its source, checked when opened, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image

from glocal.common.errors import DataError
from glocal.recognizer.photos.images import UnusableImage
from glocal.research.data import prepared as form
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.prepare import prepare, work_folder
from glocal.research.data.prepared import is_prepared, open_prepared, read_index
from glocal.research.data.prepared_writer import Sample
from glocal.research.data.registry import open_dataset
from pictures import png
from refusal import refused

Pixels = np.ndarray


def pictures(n: int, *, seed: int = 0, side: int = 9) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (n, 8, side, 3), dtype=np.uint8)


def samples(images: list[Pixels] | Pixels, names: str, encode: Callable[[Pixels], Pixels | bytes] = lambda x: x):
    return lambda: (Sample(names[i % len(names)], encode(each), f"row {i}") for i, each in enumerate(images))


def prepared(folder: Path, **splits: Callable[[], Iterator[Sample]]) -> Path:
    prepare(folder, splits, name="toy", packing="arrays", key="k")
    return folder


def of_arrays(images: Pixels, names: str) -> ClassDataset:
    return ClassDataset.from_arrays(images, [names[i % len(names)] for i in range(len(images))])


def assert_same(a: ClassDataset, b: ClassDataset) -> None:
    assert (a.manifest, a.classes) == (b.manifest, b.classes)
    np.testing.assert_array_equal(a.label, b.label)
    np.testing.assert_array_equal(a.digest, b.digest)
    assert all(np.array_equal(a.same_image(i), b.same_image(i)) for i in range(len(a)))


def test_pictures_of_one_size_become_one_array(tmp_path: Path) -> None:
    images = pictures(12)
    images[7] = images[1]  # a duplicate within a class
    for kind, encode in {"raw": lambda x: x, "png": png, "strided": lambda x: np.asfortranarray(x)}.items():
        folder = prepared(tmp_path / kind, train=samples(images, "abc", encode))
        assert_same(open_prepared(folder, "train"), of_arrays(images, "abc"))
        np.testing.assert_array_equal(np.load(folder / "train.images.npy"), images)
    assert not list(tmp_path.glob(".*"))
    index = read_index(tmp_path / "png")
    split = index.splits["train"]
    assert (index.name, index.packing, split.size, split.counts) == ("toy", "arrays", (8, 9), (4, 4, 4))
    labels = np.load(tmp_path / "raw" / "train.labels.npy")
    assert [split.classes[c] for c in labels] == list("abc" * 4)


def test_pictures_of_many_sizes_stay_encoded(tmp_path: Path) -> None:
    same, other = pictures(5), pictures(4, seed=1, side=11)
    every = [*same, *other]
    for at in (0, 3, 8):  # where the picture comes that ends the array
        order = [*every[1 : at + 1], every[0], *every[at + 1 :]] if at else every
        for i, picture in enumerate(order):
            path = tmp_path / f"files{at}" / "ab"[i % 2] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(path)
        folder = tmp_path / f"prepared{at}"
        prepared(folder, all=lambda order=order: mixed(order))
        data = open_prepared(folder, "all")
        assert_same(data, ClassDataset.from_folder(tmp_path / f"files{at}"))
        assert not (folder / "all.images.npy").exists()
        assert read_index(folder).splits["all"].size is None


def mixed(images: list[Pixels]) -> Iterator[Sample]:
    """Some as pixels, some as files."""
    for i, picture in enumerate(images):
        yield Sample("ab"[i % 2], png(picture) if i % 3 else picture, f"row {i}")


def test_large_files_and_names_that_are_no_utf8_survive(tmp_path: Path) -> None:
    large = [png(np.full((129, 128, 3), i, np.uint8)) for i in range(4)]
    folder = prepared(tmp_path / "large", all=lambda: (Sample("ab"[i % 2], b, "") for i, b in enumerate(large)))
    assert (folder / "all.blobs.bin").read_bytes()[-sum(map(len, large[1:])) :] == b"".join(large[1:])
    assert {int(open_prepared(folder, "all").image(i)[0, 0, 0]) for i in range(4)} == {0, 1, 2, 3}
    odd = os.fsdecode(b"caf\xe9")
    images = pictures(2)
    folder = prepared(tmp_path / "odd", all=lambda: iter([Sample(odd, images[0], ""), Sample("кот", images[1], "")]))
    assert set(open_prepared(folder, "all").classes) == {odd, "кот"}


def test_the_registry_opens_it_by_path_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(8)
    folder = prepared(tmp_path / "toy", train=samples(images[:4], "ab"), test=samples(images[4:], "cd"))
    assert_same(open_dataset(folder, "test"), of_arrays(images[4:], "cd"))
    monkeypatch.setenv("GLOCAL_DATA", str(tmp_path))
    monkeypatch.chdir("/")
    assert open_dataset("toy", "train").name == "toy/train"
    with refused("no-such-split", "divided into train, test; ask for one of these splits, got 'all'"):
        open_dataset("toy", "all")


def test_a_foreign_index_json_is_nobodys_business(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.fromarray(pictures(1)[0]).save(tmp_path / name / "1.png")
    (tmp_path / "index.json").write_text('{"format": 1}')
    assert not is_prepared(tmp_path)
    assert len(open_dataset(tmp_path, "all")) == 2


@pytest.mark.parametrize("encode", [lambda x: x, png])
def test_another_process_maps_the_file_itself(tmp_path: Path, encode: Callable[[Pixels], Pixels | bytes]) -> None:
    images = [*pictures(40), *(pictures(1, side=10) if encode is png else [])]
    data = open_prepared(prepared(tmp_path / "toy", all=samples(images, "ab", encode)), "all")
    sent = pickle.dumps(data.source)
    assert len(sent) < sum(each.nbytes for each in images) / 4
    np.testing.assert_array_equal(pickle.loads(sent).read(3), data.source.read(3))
    data.image(0)[:] = 0  # what is read belongs to the reader
    assert data.same_image(0).any()
    assert data.where(0).startswith(str(tmp_path / "toy" / "all."))


@pytest.mark.parametrize("file", ["images.npy", "labels.npy", "digests.npy", "order.npy"])
def test_damage_is_told_when_opening(tmp_path: Path, file: str) -> None:
    folder = prepared(tmp_path / "toy", all=samples(pictures(6), "ab"))
    path = folder / f"all.{file}"
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole + b"x", b"", b"y" * len(whole)):
        path.write_bytes(damaged)
        with refused("damaged", f"all.{file} is not as it was prepared: "):
            open_prepared(folder, "all")
    path.unlink()
    with refused("damaged", "cannot be read (No such file"):
        open_prepared(folder, "all")
    path.write_bytes(whole)
    assert len(open_prepared(folder, "all")) == 6


def test_an_array_of_another_shape_and_changed_pixels(tmp_path: Path) -> None:
    folder = prepared(tmp_path / "toy", all=samples(pictures(6), "ab"))
    path = folder / "all.images.npy"
    images = np.load(path)
    np.save(path, images.transpose(0, 2, 1, 3).copy())
    with refused("damaged", "its shape is (6, 9, 8, 3) instead of (6, 8, 9, 3)"):
        open_prepared(folder, "all")
    images[2] ^= 1
    np.save(path, images)
    data = open_prepared(folder, "all")
    changed = int(np.flatnonzero(data.position == 2)[0])
    with refused("picture-changed", "images.npy[2]"):
        data.same_image(changed)


def test_a_damaged_index(tmp_path: Path) -> None:
    folder = prepared(tmp_path / "toy", all=samples(pictures(6), "ab"))
    path = folder / "index.json"
    whole = path.read_text()
    changed, outside = json.loads(whole), json.loads(whole)
    changed["content"]["splits"]["all"]["classes"].reverse()
    files = outside["content"]["splits"]["all"]["files"]
    files["../../secret"] = files.pop("images.npy")  # files outside the folder cannot be named
    outside["sha256"] = form._checksum(outside["content"])
    other = whole.replace('"content"', '"contents"')
    for text in (whole[:-50], whole[:60], json.dumps(changed), json.dumps(outside), other):
        path.write_text(text)
        with refused("damaged", "index.json is not as it was prepared"):
            open_dataset(folder, "all")
    path.write_text(whole.replace('"format": 1', '"format": 2'))
    with refused("format", "format 2", "format 1"):
        open_dataset(folder, "all")


OTHER_KINDS: list[dict[str, Any]] = [
    {"counts": ["3", "3"]},
    {"counts": [None, None]},
    {"counts": [3.0, 3.0]},
    {"counts": [6]},
    {"classes": [["a"], ["b"]]},
    {"classes": ["a", 1]},
    {"classes": "ab"},
    {"classes": ["a", "a"]},
    {"classes": ["a", "\ud800"]},  # half a character, which no file name gives
    {"manifest": 3},
    {"manifest": ["x"]},
    {"manifest": "\udfff"},
    {"size": [8, "9"]},
    {"size": [8, 9, 3]},
    {"size": {"8": 1, "9": 2}},
    {"skipped": [[1, 2]]},
    {"skipped": [["a", "\ud800"]]},
    {"files": {"bytes": "many"}},
    {"files": {"sha256": [1]}},
    {"name": 3},
    {"name": "\ud800"},
    {"packing": None},
    {"created_by": {}},
    {"variant": ["own"]},
]


def test_an_index_of_other_kinds_of_values_is_refused_whatever_its_checksum_says(tmp_path: Path) -> None:
    folder = prepared(tmp_path / "toy", all=samples(pictures(6), "ab"))
    whole = (folder / "index.json").read_text()
    for change in OTHER_KINDS:
        index = json.loads(whole)
        content, split = index["content"], index["content"]["splits"]["all"]
        for name, value in change.items():
            if name == "files":
                split["files"]["labels.npy"].update(value)
            else:
                (split if name in split else content)[name] = value
        (folder / "index.json").write_text(json.dumps(index | {"sha256": form._checksum(content)}))
        with refused("damaged", "index.json is not as it was prepared"):
            read_index(folder)
            pytest.fail(f"{change} was read")


def test_labels_of_no_class_are_refused_before_they_are_counted(tmp_path: Path) -> None:
    """Whole by every hash; counting the largest would take 8 GB, or more than there can be."""
    folder = prepared(tmp_path / "toy", all=samples(pictures(6), "ab"))
    table, index = folder / "all.labels.npy", json.loads((folder / "index.json").read_text())
    labels = np.load(table)
    for label in (-1, 2, 1_000_000_000, 2**62):
        labels[0] = label
        np.save(table, labels)
        sha256 = hashlib.sha256(table.read_bytes()).hexdigest()
        index["content"]["splits"]["all"]["files"]["labels.npy"]["sha256"] = sha256
        (folder / "index.json").write_text(json.dumps(index | {"sha256": form._checksum(index["content"])}))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with refused("damaged", "labels do not belong"):
            open_dataset(folder, "all")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


def none_left(tmp_path: Path, match: str, *, skip_bad: bool = False, **splits: Callable[[], Iterator[Sample]]) -> None:
    """Refused in one sentence, and nothing is left."""
    target = tmp_path / "deep" / "target"
    with pytest.raises(DataError, match=match) as told:
        prepare(target, splits, name="toy", packing="arrays", key="k", skip_bad=skip_bad)
    assert "\n" not in str(told.value)
    assert [*(tmp_path / "deep").glob("*"), *(tmp_path / "deep").glob(".*")] == []


def test_bad_pictures_are_refused_or_left_out(tmp_path: Path) -> None:
    good = pictures(3)
    bad = {
        "bytes": (b"no picture", "cannot use picture bytes: its content is not"),
        "cut": (png(good[0])[:60], "cannot use picture cut: damaged"),
        "grey": (good[0][..., 0], r"cannot use picture grey: pixels must be uint8 \(H, W, 3\), got uint8 \(8, 9\)"),
        "float": (good[0] / 255, "cannot use picture float: pixels must be uint8"),
        "small": (good[0][:4], "cannot use picture small: each side must have at least 8"),
        "told": (UnusableImage("told", "the zip entry is damaged; pack it again"), "picture told: the zip entry"),
    }
    for where, (picture, match) in bad.items():

        def stream(picture: object = picture, where: str = where) -> Iterator[Sample]:
            yield from (Sample("a", each, "good") for each in good)
            yield Sample("a", picture, where)

        none_left(tmp_path, match, first=samples(good, "xyz"), train=stream)
        folder = tmp_path / where
        prepare(folder, {"train": stream}, name="toy", packing="arrays", key="k", skip_bad=True)
        data = open_prepared(folder, "train")
        assert data.manifest == of_arrays(good, "a").manifest
        assert [each.where for each in data.skipped] == [where]


def test_input_that_makes_no_data_set(tmp_path: Path) -> None:
    images = pictures(4)

    def lost() -> Iterator[Sample]:
        yield Sample("a", images[0], "")
        yield Sample("a", (tmp_path / "gone.npz").read_bytes(), "")

    def only_bad() -> Iterator[Sample]:
        yield Sample("a", images[0], "")
        yield Sample("b", b"x", "b/1.png")

    none_left(tmp_path, r"split 'all' cannot be read \(.*gone\.npz: No such file or directory\)", all=lost)
    none_left(tmp_path, r"class 'b' has no usable picture \(the first bad one is b/1\.png", all=only_bad, skip_bad=True)
    none_left(tmp_path, "split 'all' has no pictures", all=lambda: iter(()))
    none_left(
        tmp_path, "'b' is in 'train' and again in 'test'", train=samples(images, "ab"), test=samples(images, "bc")
    )
    none_left(tmp_path, "needs at least one split")
    none_left(tmp_path, "must be letters, digits", **{"../up": samples(images, "ab")})


def test_nothing_is_overwritten_and_only_one_process_prepares(tmp_path: Path) -> None:
    folder = prepared(tmp_path / "toy", all=samples(pictures(4), "ab"))
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with refused("exists", "toy holds a prepared data set already"):
        prepared(folder, all=samples(pictures(4, seed=1), "ab"))
    assert before == {path: path.read_bytes() for path in folder.iterdir()}
    (tmp_path / "empty").mkdir()
    with refused("exists", "empty exists already"):
        prepared(tmp_path / "empty", all=samples(pictures(4), "ab"))
    work = work_folder(tmp_path / "busy")
    work.mkdir()
    with FileLock(work / "lock"), refused("busy", str(tmp_path / "busy")):
        prepared(tmp_path / "busy", all=samples(pictures(4), "ab"))
    prepared(tmp_path / "busy", all=samples(pictures(4), "ab"))


def interrupted(folder: Path, images: Pixels, *, key: str = "k") -> list[str]:
    """Stop with Ctrl-C in the second split; return the splits read."""
    read: list[str] = []

    def train() -> Iterator[Sample]:
        read.append("train")
        return samples(images[:4], "ab")()

    def test() -> Iterator[Sample]:
        read.append("test")
        yield Sample("c", images[4], "")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(folder, {"train": train, "test": test}, name="toy", packing="arrays", key=key)
    assert not folder.exists()
    return read


def test_an_interrupted_job_goes_on_after_the_last_finished_split(tmp_path: Path) -> None:
    images, told = pictures(8), []
    splits = {"train": samples(images[:4], "ab"), "test": samples(images[4:], "cd")}
    undisturbed = prepared(tmp_path / "undisturbed", **splits)
    folder = tmp_path / "toy"
    assert interrupted(folder, images) == ["train", "test"]
    assert interrupted(folder, images) == ["test"]
    assert interrupted(folder, images, key="other input") == ["train", "test"]
    assert interrupted(folder, images) == ["train", "test"]
    (work_folder(folder) / "data" / "train.labels.npy").write_bytes(b"")
    assert interrupted(folder, images) == ["train", "test"]

    (work_folder(folder) / "data" / ".0123456789abcdef.partial").touch()  # half a file of a killed process
    splits["train"] = lambda: pytest.fail("a finished split was read again")
    prepare(folder, splits, name="toy", packing="arrays", key="k", progress=lambda *each: told.append(each))
    assert told == [("train", 4), *(("test", n) for n in range(1, 5))]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {p.name: p.read_bytes() for p in undisturbed.iterdir()}
    assert not work_folder(folder).exists()


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 21, hard))  # bytes per file: a real refusal by the system
    try:
        none_left(
            tmp_path,
            r"data set 'toy' cannot be written to .*target \(File too large\); free some space",
            first=samples(pictures(4), "xy"),
            all=lambda: (Sample("a", np.full((512, 512, 3), i, np.uint8), "") for i in range(9)),
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
