"""ClassDataset from folders, arrays, CSV lists and zips: what is found, what is refused and how."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import threading
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faults import killed
from glocal.common.errors import DataError
from glocal.recognizer.photos.images import decode
from glocal.research.data import digests, layouts
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.layouts import list_folder, list_zip
from packings import write_file
from pictures import Tree, count_decodes, make_tree, png, write_tree
from refusal import refused


@pytest.fixture
def tree() -> Tree:
    return make_tree()


def test_folder_holds_every_picture_under_its_class(tmp_path: Path, tree: Tree) -> None:
    data = ClassDataset.from_folder(write_tree(tmp_path / "pets", tree))
    assert data.name == "pets"
    assert sorted(data.classes) == ["cat", "dog"]
    assert len(data) == 5
    assert dict(zip(data.classes, data.counts.tolist(), strict=True)) == {"cat": 3, "dog": 2}
    found = {str(Path(data.where(i)).relative_to(tmp_path / "pets")): data.image(i) for i in range(len(data))}
    assert found.keys() == tree.keys()
    for name, pixels in tree.items():
        np.testing.assert_array_equal(found[name], pixels)
    for c, name in enumerate(data.classes):
        assert (data.label[data.members(c)] == c).all()
        assert all(f"/{name}/" in data.where(i) for i in data.members(c))
        keys = [bytes(row) for row in data.digest[data.members(c)]]
        assert keys == sorted(keys)
    with refused("data", "0..1", "got 2"):
        data.members(2)


def test_litter_is_passed_over_and_other_files_are_counted(tmp_path: Path, tree: Tree) -> None:
    clean = ClassDataset.from_folder(write_tree(tmp_path / "clean", tree))
    root = write_tree(tmp_path / "littered", tree)
    litter = ".DS_Store cat/.hidden.png cat/Thumbs.db dog/desktop.ini __MACOSX/cat/._1.png .git/a.png"
    for name in f"{litter} README.md cat/notes.txt cat/old/notes".split():
        write_file(root / name, b"no picture")
    littered = ClassDataset.from_folder(root)
    assert (clean.ignored, littered.ignored) == (0, 3)
    assert littered.manifest == clean.manifest
    assert littered.skipped == ()


def test_links_are_followed_and_loops_end(tmp_path: Path, tree: Tree) -> None:
    root = write_tree(tmp_path / "pets", tree)
    plain = ClassDataset.from_folder(root)
    (root / "cat" / "again").symlink_to(root / "cat", target_is_directory=True)
    (root / "cat" / "old" / "up").symlink_to(root, target_is_directory=True)
    looped = ClassDataset.from_folder(root)
    cats = looped.members(looped.classes.index("cat"))
    assert len(cats) == 3 + 2  # the link to the root leads to the dogs as well, each folder once
    (root / "cat" / "old" / "up").unlink()
    assert ClassDataset.from_folder(root).manifest == plain.manifest
    (tmp_path / "elsewhere").symlink_to(root, target_is_directory=True)
    assert ClassDataset.from_folder(tmp_path / "elsewhere").manifest == plain.manifest


@pytest.mark.parametrize(
    ("change", "where", "words"),
    [
        (lambda root: None, "absent", "no such folder"),
        (lambda root: None, "cat/1.png", "a file, not a folder"),
        (lambda root: None, "dog", "2 pictures lie directly in it"),
        (lambda root: (root / "empty" / "in").mkdir(parents=True), "empty/in", "no pictures and no class folders"),
        (lambda root: (root / "bird").mkdir(), "", "class 'bird' has no picture"),
        (lambda root: write_file(root / "bird" / "1.jpg", b""), "", "class 'bird' has no usable picture"),
        (
            lambda root: [(root / old).rename(root / new) for old, new in (("cat", "train"), ("dog", "test"))],
            "",
            "splits",
        ),
    ],
)
def test_folder_refusals_are_sentences(
    tmp_path: Path, tree: Tree, change: Callable[[Path], object], where: str, words: str
) -> None:
    root = write_tree(tmp_path, tree)
    change(root)
    with refused("data", words):
        ClassDataset.from_folder(root / where, skip_bad=True)


def test_bad_pictures_are_listed_up_to_eight_and_counted(tmp_path: Path, tree: Tree) -> None:
    root = write_tree(tmp_path / "pets", tree)
    for i in range(11):
        (root / "cat" / f"bad{i:02d}.jpg").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="has 11 pictures that cannot be used") as caught:
        ClassDataset.from_folder(root)
    assert all(words in str(caught.value) for words in ("bad07.jpg", "and 3 more", "skip_bad=True (--skip-bad)"))
    assert "bad08.jpg" not in str(caught.value)
    (root / "cat" / "notes.txt").write_text("hello")
    data = ClassDataset.from_folder(root, skip_bad=True)
    assert len(data) == 5
    assert [Path(bad.where).name for bad in data.skipped] == [f"bad{i:02d}.jpg" for i in range(11)]
    part = data.subset(["dog"])  # still tells what was left out
    assert (len(part.skipped), part.ignored) == (11, 1)


def test_an_interruption_gets_out(tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    root, before = write_tree(tmp_path / "pets", tree), threading.active_count()
    monkeypatch.setattr(digests, "content_digest", killed)
    with pytest.raises(KeyboardInterrupt):
        ClassDataset.from_folder(root)
    assert threading.active_count() == before


def test_a_subset_decodes_nothing_and_names_what_is_missing(tmp_path: Path, tree: Tree, monkeypatch) -> None:
    data = ClassDataset.from_folder(write_tree(tmp_path / "pets", tree))
    decoded = count_decodes(monkeypatch)
    dogs = data.subset(["dog"], name="dogs")
    assert decoded == []
    assert (dogs.name, dogs.classes, dogs.label.tolist()) == ("dogs", ("dog",), [0, 0])
    assert data.subset(["dog", "cat", "dog"]).manifest == data.manifest
    for names, words in ((["cat", "dgo"], "did you mean 'dog'"), (["zzz"], "no class"), ([], "at least one class")):
        with refused("data", words):
            data.subset(names)


def test_arrays_grey_names_and_refusals() -> None:
    grey = np.arange(4 * 64, dtype=np.uint8).reshape(4, 8, 8)
    data = ClassDataset.from_arrays(grey, [1, 0, 1, 1], ["a", "b"])
    assert sorted(zip(data.counts.tolist(), data.classes, strict=True)) == [(1, "a"), (3, "b")]
    row = int(data.position[0])
    np.testing.assert_array_equal(data.image(0), np.repeat(grey[row][..., None], 3, axis=2))
    assert ClassDataset.from_arrays(grey[..., None], ["x", "y", "x", "x"]).manifest == data.manifest
    assert sorted(ClassDataset.from_arrays(grey, np.array([5, 5, 7, 7])).classes) == ["5", "7"]
    colour = np.repeat(grey[..., None], 3, axis=3)
    assert ClassDataset.from_arrays(colour, [1, 0, 1, 1]).manifest == data.manifest
    data.image(0)[:] = 0  # the caller's own copy
    np.testing.assert_array_equal(data.image(0)[..., 0], grey[row])
    for images, labels, names, words in (
        (grey / 255, [0] * 4, None, "got float64"),
        (np.zeros((4, 3, 8, 8), np.uint8), [0] * 4, None, "put the channels last"),
        (grey, [0] * 3, None, "one per image: 4 images"),
        (grey, [0, 1, 2, 0], ["a", "b"], "labels must be in 0..1, got 0..2"),
        (grey, ["a"] * 4, ["a", "b"], "whole numbers"),
        (grey, [0] * 4, ["a", "a"], "class_names must differ"),
        (grey[:0], [], None, "has no pictures"),
        (grey[:, :4], [0] * 4, None, "at least 8 pixels, got 8x4"),
    ):
        with refused("data", words):
            ClassDataset.from_arrays(images, labels, names)


@pytest.mark.parametrize("header", ["", "filename,label\n", "id,Label,Filename\n"])
def test_csv_with_and_without_header(tmp_path: Path, tree: Tree, header: str) -> None:
    root = write_tree(tmp_path / "pets", tree)
    three = header.count(",") == 2
    rows = [f"7,{n.split('/')[0]},{n}" if three else f'"{n}",{n.split("/")[0]}' for n in tree]
    (root / "list.csv").write_text("\ufeff" + header + "\n".join(rows) + "\n\n", encoding="utf-8")
    data = ClassDataset.from_csv(root / "list.csv")
    assert data.name == "list"
    assert data.manifest == ClassDataset.from_folder(root).manifest


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cat/1.png\n", "line 1 must give a file name and a label, got 'cat/1.png'"),  # see hostile_files
        ("cat/1.png,cat\ndog/1.png,dog\ncat/1.png,cat\n", "line 3 repeats line 1"),
        ("cat/1.png,cat\ncat/nine.png,cat\n", "nine.png: the file does not exist"),
        ("caf\xe9.png,caf\xe9\n", "not a CSV in UTF-8"),
        ("cat/1.png,cat\ncat/\0.png,cat\n", "line 2 holds a zero byte"),
        ("cat/1.png,c\0t\n", "line 1 holds a zero byte"),
    ],
)
def test_csv_refusals_name_the_line(tmp_path: Path, tree: Tree, text: str, words: str) -> None:
    path = write_tree(tmp_path, tree) / "list.csv"
    with refused("data", "no such CSV file"):
        ClassDataset.from_csv(path)
    path.write_bytes(text.encode("latin-1"))
    with refused("bad-pictures" if "nine" in text else "data", words):
        ClassDataset.from_csv(path)


def zip_of(path: Path, tree: Tree, *, inside: str = "", **more: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, pixels in tree.items():
            archive.writestr(f"{inside}{name}", png(pixels))
        for name, content in more.items():
            archive.writestr(f"{inside}cat/{name}.bmp", content)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_picture_beside_wrapped_classes_makes_them_no_single_class(tmp_path: Path, tree: Tree, packed: bool) -> None:
    stray = {**tree, "stray.png": next(iter(tree.values()))}
    if packed:
        found = list_zip(zip_of(tmp_path / "pets.zip", stray, inside="photos/"))
    else:
        write_tree(tmp_path / "photos", stray)
        found = list_folder(tmp_path)
    assert (set(found.class_of), list(found.loose)) == ({"cat", "dog"}, ["stray.png"])
    one = {name: pixels for name, pixels in stray.items() if not name.startswith("dog/")}  # a class with a folder in it
    if packed:
        alone = list_zip(zip_of(tmp_path / "one.zip", one, inside="photos/"))
    else:
        shutil.rmtree(tmp_path / "photos" / "dog")
        alone = list_folder(tmp_path)
    assert (set(alone.class_of), list(alone.loose)) == ({"photos"}, [])


def test_a_class_without_a_picture_is_refused_in_a_zip_as_in_a_folder(tmp_path: Path, tree: Tree) -> None:
    path = zip_of(tmp_path / "pets.zip", tree)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("bird/raw.cr2", b"no picture")
    with refused("data", "class 'bird' has no picture"):
        list_zip(path)


def test_zip_reads_inside_a_folder_from_many_threads_and_after_pickling(tmp_path: Path, tree: Tree) -> None:
    path = zip_of(tmp_path / "pets.zip", tree, inside="train/")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("__MACOSX/train/cat/1.png", b"litter")
        archive.writestr("test/bird/1.png", png(tree["cat/1.png"]))
        archive.writestr("train/cat/notes.txt", "hello")
    with refused("data", "are splits, not classes"):
        ClassDataset.from_zip(path)
    data = ClassDataset.from_zip(path, inside="train", name="pets")
    assert data.ignored == 1
    assert data.manifest == ClassDataset.from_folder(write_tree(tmp_path / "pets", tree)).manifest
    expected = [data.image(i) for i in range(5)]
    again = pickle.loads(pickle.dumps(data))
    for copy in (data, again):
        with ThreadPoolExecutor(8) as pool:
            for i, image in enumerate(pool.map(lambda k, copy=copy: copy.image(k % 5), range(200))):
                np.testing.assert_array_equal(image, expected[i % 5])


def test_a_zip_is_listed_as_its_folder_is_however_it_was_packed(tmp_path: Path, tree: Tree) -> None:
    """The order decides which photos a recognizer tries its threshold on."""
    sorted_, turned = (zip_of(tmp_path / f"{k}.zip", dict(sorted(tree.items(), reverse=k))) for k in (False, True))
    names = [[member.filename for member in list_zip(path).source._members] for path in (sorted_, turned)]
    assert names[0] == names[1] == sorted(tree)


def test_a_forked_process_opens_its_own_zip_handle(tmp_path: Path, tree: Tree, monkeypatch) -> None:
    path = zip_of(tmp_path / "pets.zip", tree)
    data = ClassDataset.from_zip(path)
    parent = data.source._archive()
    assert data.source._archive() is parent
    monkeypatch.setattr(os, "getpid", lambda: -2)
    child = data.source._archive()
    assert child is not parent
    assert decode(child.read("cat/1.png")).shape == (8, 9, 3)


@pytest.mark.parametrize(
    ("code", "words", "names"),
    [
        ("data", "1 pictures lie directly in it", {"1.png": None}),
        ("data", "no pictures and no class folders", {"cat/notes.txt": b"x"}),
        ("data", "points outside the archive", {"cat/1.png": None, "../dog/1.png": None}),  # see hostile_archives
        ("bad-pictures", "pets.zip:cat/2.png: its content is not a picture", {"cat/1.png": None, "cat/2.png": b"text"}),
    ],
)
def test_zip_refusals(tmp_path: Path, tree: Tree, code: str, words: str, names: dict[str, bytes | None]) -> None:
    path = tmp_path / "pets.zip"
    with refused("data", "no such zip file"):
        ClassDataset.from_zip(path)
    path.write_text("no zip")
    with refused("data", "not a readable zip file"):
        ClassDataset.from_zip(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in names.items():
            archive.writestr(name, content or png(tree["cat/1.png"]))
    with refused(code, words):
        ClassDataset.from_zip(path)


def test_a_damaged_zip_entry_is_a_bad_picture_and_one_that_packs_well_is_read(tmp_path: Path, tree: Tree) -> None:
    path = tmp_path / "pets.zip"
    with zipfile.ZipFile(path, "w") as archive:  # stored, so that the picture can be found in it
        for name, pixels in tree.items():
            archive.writestr(name, png(pixels))
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"IDAT") + 6] ^= 0xFF
    path.write_bytes(raw)
    data = ClassDataset.from_zip(path, skip_bad=True)
    assert (len(data), [bad.where for bad in data.skipped]) == (4, [f"{path}:cat/1.png"])
    assert "zip entry is damaged" in data.skipped[0].reason
    buffer = io.BytesIO()
    Image.new("RGB", (800, 800), "white").save(buffer, "BMP")
    path = zip_of(tmp_path / "pets.zip", tree, white=buffer.getvalue())
    assert len(ClassDataset.from_zip(path)) == 6


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("ratio_matters_from", r"unpacks to 1\d\d\d times its size, more than 200 allowed"),
        ("member", "unpacks to 2,000,000 bytes, more than 1,000,000 allowed"),
    ],
)
def test_a_zip_bomb_is_one_bad_picture_and_is_not_unpacked(
    tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch, limit: str, words: str
) -> None:
    path = zip_of(tmp_path / "pets.zip", tree, bomb=bytes(2_000_000))
    monkeypatch.setattr(layouts, "PICTURE_LIMITS", replace(layouts.PICTURE_LIMITS, **{limit: 1_000_000}))
    read, original = [], zipfile.ZipFile.read
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *a: read.append(a[1].filename) or original(*a))
    with pytest.raises(DataError, match=words):
        ClassDataset.from_zip(path)
    data = ClassDataset.from_zip(path, skip_bad=True)
    assert (len(data), [bad.where for bad in data.skipped]) == (5, [f"{path}:cat/bomb.bmp"])
    assert set(read) == set(tree)


def test_a_zip_entry_too_large_for_the_memory_is_a_bad_picture(tmp_path: Path, tree: Tree, monkeypatch) -> None:
    path, original = zip_of(tmp_path / "pets.zip", tree), zipfile.ZipFile.read

    def read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
        if member.filename == "cat/1.png":
            raise MemoryError
        return original(archive, member)

    monkeypatch.setattr(zipfile.ZipFile, "read", read)
    [bad] = ClassDataset.from_zip(path, skip_bad=True).skipped
    assert bad == (f"{path}:cat/1.png", "not enough memory to unpack it; make it smaller")
