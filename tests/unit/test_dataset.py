"""ClassDataset from folders, zips, arrays and CSV lists: what it holds, and what it refuses."""

from __future__ import annotations

import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from glocal.common.errors import DataError
from glocal.recognizer.photos import folders
from glocal.recognizer.photos.folders import list_classes
from glocal.research.data import dataset as digests
from glocal.research.data.dataset import ClassDataset
from pictures import Tree, count_decodes, make_tree, png, write_file, write_tree
from refusal import refused

Pack = Callable[[Path], Path]


@pytest.fixture
def tree() -> Tree:
    return make_tree()


def _packed(folder: Path) -> Path:
    return Path(shutil.make_archive(str(folder), "zip", folder))


@pytest.fixture(params=[lambda folder: folder, _packed], ids=["folder", "zip"])
def pack(request: pytest.FixtureRequest) -> Pack:
    return request.param


def test_every_picture_is_under_its_class(tmp_path: Path, tree: Tree, pack: Pack) -> None:
    data = ClassDataset.from_folder(pack(write_tree(tmp_path / "pets", tree)), name="pets")
    assert (data.name, sorted(data.classes), len(data)) == ("pets", ["cat", "dog"], 5)
    assert dict(zip(data.classes, data.counts.tolist(), strict=True)) == {"cat": 3, "dog": 2}
    found = {name: data.image(i) for i in range(5) for name in tree if data.where(i).endswith(name)}
    for name, pixels in tree.items():
        np.testing.assert_array_equal(found[name], pixels)
    for c, name in enumerate(data.classes):
        assert (data.label[data.members(c)] == c).all()
        assert all(f"{name}/" in data.where(i) for i in data.members(c))
        keys = [bytes(row) for row in data.digest[data.members(c)]]
        assert keys == sorted(keys)
    with refused("data", "0..1", "got 2"):
        data.members(2)


def test_litter_is_ignored_and_other_files_are_counted(tmp_path: Path, tree: Tree, pack: Pack) -> None:
    clean = ClassDataset.from_folder(write_tree(tmp_path / "clean", tree))
    root = write_tree(tmp_path / "littered", tree)
    litter = ".DS_Store cat/.hidden.png cat/Thumbs.db dog/desktop.ini __MACOSX/cat/._1.png .git/a.png"
    for name in f"{litter} README.md cat/notes.txt cat/old/notes".split():
        write_file(root / name, b"no picture")
    littered = ClassDataset.from_folder(pack(root))
    assert (clean.ignored, littered.ignored, littered.skipped) == (0, 3, ())
    assert littered.manifest == clean.manifest


def test_links_are_followed_and_loops_end(tmp_path: Path, tree: Tree) -> None:
    root = write_tree(tmp_path / "pets", tree)
    plain = ClassDataset.from_folder(root)
    (root / "cat" / "again").symlink_to(root / "cat", target_is_directory=True)
    (root / "cat" / "old" / "up").symlink_to(root, target_is_directory=True)
    (tmp_path / "elsewhere").symlink_to(root, target_is_directory=True)
    assert ClassDataset.from_folder(tmp_path / "elsewhere").manifest == plain.manifest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: shutil.rmtree(root), "no such folder"),
        (lambda root: [shutil.rmtree(root), root.touch()], "a file, not a folder"),
        (lambda root: [shutil.rmtree(root), write_file(root / "1.png", b"")], "1 pictures lie directly in it"),
        (lambda root: [shutil.rmtree(root), root.mkdir()], "no pictures and no class folders"),
        (lambda root: (root / "bird").mkdir(), "class 'bird' has no picture"),
        (lambda root: write_file(root / "bird" / "raw.cr2", b""), "class 'bird' has no picture"),
        (lambda root: write_file(root / "bird" / "1.jpg", b""), "class 'bird' has no usable image"),
        (lambda root: [(root / "cat").rename(root / "train"), (root / "dog").rename(root / "test")], "splits"),
    ],
)
def test_refusals(tmp_path: Path, tree: Tree, pack: Pack, change: Callable[[Path], object], words: str) -> None:
    root = write_tree(tmp_path / "pets", tree)
    change(root)
    with refused("data", words):
        ClassDataset.from_folder(pack(root) if root.is_dir() else root, skip_bad=True)


def test_bad_pictures_are_listed_up_to_eight_and_counted(tmp_path: Path, tree: Tree, pack: Pack) -> None:
    root = write_tree(tmp_path / "pets", tree)
    for i in range(11):
        write_file(root / "cat" / f"bad{i:02d}.jpg", b"nonsense")
    write_file(root / "cat" / "notes.txt", b"hello")
    with refused("bad-pictures", "11 images", "bad07.jpg", "3 more", "--skip-bad"):
        ClassDataset.from_folder(pack(root))
    data = ClassDataset.from_folder(pack(root), skip_bad=True)
    assert (len(data), len(data.skipped)) == (5, 11)
    part = data.subset(["dog"])  # it remembers what was left out
    assert (len(part.skipped), part.ignored) == (11, 1)


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
    data.image(0)[:] = 0  # the caller's own copy
    np.testing.assert_array_equal(data.image(0)[..., 0], grey[row])
    for images, labels, names, words in (
        (grey / 255, [0] * 4, None, "got float64"),
        (np.zeros((4, 3, 8, 8), np.uint8), [0] * 4, None, "put channels last"),
        (grey, [0] * 3, None, "one per image: 4 images"),
        (grey, [0, 1, 2, 0], ["a", "b"], "labels must be in 0..1, got 0..2"),
        (grey, ["a"] * 4, ["a", "b"], "whole numbers"),
        (grey, [0] * 4, ["a", "a"], "class_names must differ"),
        (grey[:0], [], None, "has no images"),
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
        ("cat/1.png\n", "line 1"),
        ("cat/1.png,cat\ndog/1.png,dog\ncat/1.png,cat\n", "line 3 repeats line 1"),
        ("cat/1.png,cat\ncat/nine.png,cat\n", "nine.png: the file does not exist"),
        ("caf\xe9.png,caf\xe9\n", "not a CSV in UTF-8"),
        ("cat/1.png,cat\ncat/\0.png,cat\n", "line 2 holds a zero byte"),
    ],
)
def test_csv_refusals_name_the_line(tmp_path: Path, tree: Tree, text: str, words: str) -> None:
    path = write_tree(tmp_path, tree) / "list.csv"
    with refused("data", "no such CSV file"):
        ClassDataset.from_csv(path)
    path.write_bytes(text.encode("latin-1"))
    with refused("bad-pictures" if "nine" in text else "data", words):
        ClassDataset.from_csv(path)


def test_a_picture_beside_wrapped_classes_makes_them_no_single_class(tmp_path: Path, tree: Tree, pack: Pack) -> None:
    root = write_tree(tmp_path / "pets", {f"photos/{name}": tree[name] for name in tree})
    write_tree(root / "photos", {"stray.png": tree["cat/1.png"]})
    listing = list_classes(pack(root))
    assert (set(listing.class_of), list(listing.loose)) == ({"cat", "dog"}, ["stray.png"])
    shutil.rmtree(root / "photos" / "dog")  # left is a class with a folder in it
    listing = list_classes(pack(root))
    assert (set(listing.class_of), list(listing.loose)) == ({"photos"}, [])


def test_a_zip_is_listed_as_its_folder_is_however_it_was_packed(tmp_path: Path, tree: Tree) -> None:
    """The order decides which photos a recognizer tries its threshold on."""
    folder = list_classes(write_tree(tmp_path / "pets", tree)).source
    listed = [[os.path.relpath(folder.where(i), tmp_path / "pets") for i in range(len(folder))]]
    for turned in (False, True):
        path = tmp_path / f"{turned}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name in sorted(tree, reverse=turned):
                archive.writestr(name, png(tree[name]))
        source = list_classes(path).source
        listed.append([source.where(i).removeprefix(f"{path}:") for i in range(len(source))])
    assert listed == [sorted(tree)] * 3


def test_zip_reads_inside_a_folder_from_many_threads_and_after_pickling(tmp_path: Path, tree: Tree) -> None:
    root = write_tree(tmp_path / "both" / "train", tree).parent
    write_tree(root / "test", {"bird/1.png": tree["cat/1.png"]})
    path = _packed(root)
    data = ClassDataset.from_folder(path, inside="train", name="pets")
    assert data.manifest == ClassDataset.from_folder(root, inside="train").manifest
    expected = [data.image(i) for i in range(5)]
    for copy in (data, pickle.loads(pickle.dumps(data))):
        with ThreadPoolExecutor(8) as pool:
            for i, image in enumerate(pool.map(lambda k, copy=copy: copy.image(k % 5), range(200))):
                np.testing.assert_array_equal(image, expected[i % 5])


def test_what_is_wrong_with_a_zip_is_told(tmp_path: Path, tree: Tree) -> None:
    path = tmp_path / "pets.zip"
    path.write_text("no zip")
    with refused("data", "not a readable zip file"):
        ClassDataset.from_folder(path)
    with zipfile.ZipFile(path, "w") as archive:  # stored, so that the picture can be found in it
        for name, pixels in tree.items():
            archive.writestr(name, png(pixels))
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"IDAT") + 6] ^= 0xFF
    path.write_bytes(raw)
    data = ClassDataset.from_folder(path, skip_bad=True)
    assert (len(data), [bad.where for bad in data.skipped]) == (4, [f"{path}:cat/1.png"])
    assert "damaged" in data.skipped[0].reason


@pytest.mark.parametrize("limit", ["RATIO_MATTERS_FROM", "LARGEST_MEMBER"])
def test_a_zip_bomb_is_one_bad_picture(tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    root = write_tree(tmp_path / "pets", tree)
    write_file(root / "cat" / "bomb.bmp", bytes(2_000_000))
    monkeypatch.setattr(folders, limit, 1_000_000)
    with pytest.raises(DataError, match="2,000,000 bytes"):
        ClassDataset.from_folder(_packed(root))
    data = ClassDataset.from_folder(_packed(root), skip_bad=True)
    assert (len(data), [bad.where for bad in data.skipped]) == (5, [f"{root}.zip:cat/bomb.bmp"])


# ---- kept digests ----------------------------------------------------------------------------------------------------


@pytest.fixture
def old_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files just written count as old enough to be trusted."""
    monkeypatch.setattr(digests, "TRUSTED_AFTER", -(10**18))


@pytest.mark.usefixtures("old_files")
def test_a_picture_is_decoded_again_only_when_its_file_changed(tmp_path: Path, tree: Tree, monkeypatch) -> None:
    bmp = {name.lower().replace("png", "bmp"): pixels for name, pixels in tree.items()}
    root = write_tree(tmp_path / "pets", bmp)
    decoded = count_decodes(monkeypatch)
    first = ClassDataset.from_folder(root)
    assert len(decoded) == 5
    assert ClassDataset.from_folder(root).manifest == first.manifest
    assert len(decoded) == 5
    write_tree(root, {"cat/1.bmp": bmp["cat/1.bmp"] ^ 1})  # the same size, and the same time is set again
    assert ClassDataset.from_folder(root).manifest != first.manifest
    assert len(decoded) == 6


@pytest.mark.usefixtures("old_files")
@pytest.mark.parametrize("content", ["", "[]", '{"decoder": 3}', None])
def test_damaged_digests_are_made_again(tmp_path: Path, tree: Tree, monkeypatch, content: str | None) -> None:
    root = write_tree(tmp_path / "pets", tree)
    first, kept = ClassDataset.from_folder(root), digests.digest_file(root)
    good = kept.read_text()
    kept.write_text(good.replace('"decoder": "', '"decoder": "x') if content is None else content)
    decoded = count_decodes(monkeypatch)
    assert ClassDataset.from_folder(root).manifest == first.manifest
    assert (len(decoded), kept.read_text()) == (5, good)
