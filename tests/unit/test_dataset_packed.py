"""ClassDataset from CSV lists and zips: what is found, what is refused and how."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glocal.data import sources
from glocal.data.dataset import ClassDataset
from glocal_runtime.errors import DataError
from glocal_runtime.images import decode
from pictures import Tree, make_tree, png, write_tree


@pytest.fixture
def tree() -> Tree:
    return make_tree()


@pytest.mark.parametrize("header", ["", "filename,label\n", "id,Label,Filename\n"])
def test_csv_with_and_without_header(tmp_path: Path, tree: Tree, header: str) -> None:
    root = write_tree(tmp_path / "pets", tree)
    three = header.count(",") == 2
    rows = [f"7,{n.split('/')[0]},{n}" if three else f'"{n}",{n.split("/")[0]}' for n in tree]
    (root / "list.csv").write_text("\ufeff" + header + "\n".join(rows) + "\n\n", encoding="utf-8")
    data = ClassDataset.from_csv(root / "list.csv")
    assert data.name == "list"
    assert data.manifest == ClassDataset.from_folder(root).manifest
    (tmp_path / "elsewhere.csv").write_bytes((root / "list.csv").read_bytes())
    assert ClassDataset.from_csv(tmp_path / "elsewhere.csv", root).manifest == data.manifest


def test_csv_refusals_name_the_line(tmp_path: Path, tree: Tree) -> None:
    root = write_tree(tmp_path / "pets", tree)
    path = root / "list.csv"
    for text, words in {
        "": "no rows",
        "filename,label\n": "no rows",
        "cat/1.png\n": r"line 1 must have the columns filename,label, got \['cat/1.png'\]",
        "filename,label\ncat/1.png,\n": "line 2 must give a file name and a label",
        "cat/1.png,cat\ndog/1.png,dog\ncat/1.png,cat\n": "line 3 repeats line 1",
        "cat/1.png,cat\ncat/nine.png,cat\n": r"nine\.png: the file does not exist",
        "caf\xe9.png,caf\xe9\n": "not a CSV in UTF-8",
    }.items():
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(DataError, match=words):
            ClassDataset.from_csv(path)
    with pytest.raises(DataError, match="no such CSV file"):
        ClassDataset.from_csv(tmp_path / "absent.csv")
    with pytest.raises(DataError, match="image_root must be the folder"):
        ClassDataset.from_csv(path, tmp_path / "absent")


def test_zip_reads_inside_a_folder_from_many_threads_and_after_pickling(tmp_path: Path, tree: Tree) -> None:
    path = tmp_path / "pets.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, pixels in tree.items():
            archive.writestr(f"train/{name}", png(pixels))
            archive.writestr(f"__MACOSX/train/{name}", b"litter")
        archive.writestr("test/bird/1.png", png(tree["cat/1.png"]))
        archive.writestr("train/cat/notes.txt", "hello")
    with pytest.raises(DataError, match="are splits, not classes; say which with inside="):
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


def test_a_forked_process_opens_its_own_zip_handle(tmp_path: Path, tree: Tree, monkeypatch) -> None:
    path = tmp_path / "pets.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, pixels in tree.items():
            archive.writestr(name, png(pixels))
    data = ClassDataset.from_zip(path)
    parent = data.source._archive()
    assert data.source._archive() is parent
    monkeypatch.setattr(os, "getpid", lambda: -2)
    child = data.source._archive()
    assert child is not parent
    assert decode(child.read("cat/1.png")).shape == (8, 9, 3)


def test_zip_refusals(tmp_path: Path, tree: Tree) -> None:
    good = png(tree["cat/1.png"])

    def refused(words: str, *entries: tuple[str, bytes], encrypted: bool = False) -> None:
        path = tmp_path / "bad.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in entries:
                archive.writestr(name, content)
        if encrypted:  # the flag in the central directory is what a reader goes by
            raw = bytearray(path.read_bytes())
            raw[raw.index(b"PK\x01\x02") + 8] |= 1
            path.write_bytes(raw)
        with pytest.raises(DataError, match=words):
            ClassDataset.from_zip(path)

    refused("points outside the archive", ("cat/1.png", good), ("../dog/1.png", good))
    refused("points outside the archive", ("/cat/1.png", good))
    refused("points outside the archive", ("cat\\..\\..\\1.png", good))
    refused("points outside the archive", ("C:/cat/1.png", good))
    refused("is encrypted; unpack it", ("cat/1.png", good), encrypted=True)
    refused("1 pictures lie directly in it", ("1.png", good))
    refused("no pictures and no class folders", ("cat/notes.txt", b"x"))
    refused(r"bad\.zip:cat/2\.png: its content is not a picture", ("cat/1.png", good), ("cat/2.png", b"text"))
    (tmp_path / "text.zip").write_text("no zip")
    with pytest.raises(DataError, match="not a readable zip file"):
        ClassDataset.from_zip(tmp_path / "text.zip")
    with pytest.raises(DataError, match="no such zip file"):
        ClassDataset.from_zip(tmp_path)


def test_a_damaged_zip_entry_is_a_bad_picture(tmp_path: Path, tree: Tree) -> None:
    path = tmp_path / "pets.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, pixels in tree.items():
            archive.writestr(name, png(pixels))
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"IDAT") + 6] ^= 0xFF
    path.write_bytes(raw)
    data = ClassDataset.from_zip(path, skip_bad=True)
    assert len(data) == 4
    assert [bad.where for bad in data.skipped] == [f"{path}:cat/1.png"]
    assert "zip entry is damaged" in data.skipped[0].reason


def zip_of(path: Path, tree: Tree, **more: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, pixels in tree.items():
            archive.writestr(name, png(pixels))
        for name, content in more.items():
            archive.writestr(f"cat/{name}.bmp", content)
    return path


def test_an_honest_white_picture_that_packs_well_is_read(tmp_path: Path, tree: Tree) -> None:
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
    monkeypatch.setattr(sources, "PICTURE_LIMITS", replace(sources.PICTURE_LIMITS, **{limit: 1_000_000}))
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
