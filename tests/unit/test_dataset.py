"""ClassDataset from folders and arrays: what is found, what is refused and how."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from glocal.data.dataset import ClassDataset
from glocal.data.sources import ArraySource
from glocal_runtime.errors import DataError
from pictures import Tree, count_decodes, make_tree, write_tree


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
    with pytest.raises(DataError, match=r"class must be in 0\.\.1 .* got 2"):
        data.members(2)


def test_litter_is_passed_over_and_other_files_are_counted(tmp_path: Path, tree: Tree) -> None:
    clean = ClassDataset.from_folder(write_tree(tmp_path / "clean", tree))
    root = write_tree(tmp_path / "littered", tree)
    for name in (
        ".DS_Store",
        "cat/.hidden.png",
        "cat/Thumbs.db",
        "dog/desktop.ini",
        "__MACOSX/cat/._1.png",
        ".git/a.png",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"litter")
    for name in ("README.md", "cat/notes.txt", "cat/old/notes"):
        (root / name).write_text("hello")
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


def test_folder_refusals_are_sentences(tmp_path: Path, tree: Tree) -> None:
    root = write_tree(tmp_path / "pets", tree)
    with pytest.raises(DataError, match="no such folder"):
        ClassDataset.from_folder(tmp_path / "absent")
    with pytest.raises(DataError, match="a file, not a folder"):
        ClassDataset.from_folder(root / "cat/1.png")
    with pytest.raises(DataError, match="2 pictures lie directly in it"):
        ClassDataset.from_folder(root / "dog")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no pictures and no class folders"):
        ClassDataset.from_folder(tmp_path / "empty")
    (root / "bird").mkdir()
    with pytest.raises(DataError, match="class 'bird' has no picture"):
        ClassDataset.from_folder(root)
    (root / "bird" / "1.jpg").touch()
    with pytest.raises(DataError, match=r"class 'bird' has no usable picture .*1\.jpg: the file is empty"):
        ClassDataset.from_folder(root, skip_bad=True)
    write_tree(tmp_path / "divided", {"train/a/1.png": tree["cat/1.png"], "test/b/1.png": tree["dog/1.png"]})
    with pytest.raises(DataError, match=r"\['test', 'train'\] are splits, not classes"):
        ClassDataset.from_folder(tmp_path / "divided")


def test_bad_pictures_are_listed_up_to_eight_and_counted(tmp_path: Path, tree: Tree) -> None:
    root = write_tree(tmp_path / "pets", tree)
    for i in range(11):
        (root / "cat" / f"bad{i:02d}.jpg").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="has 11 pictures that cannot be used") as caught:
        ClassDataset.from_folder(root)
    assert "bad07.jpg" in str(caught.value)
    assert "bad08.jpg" not in str(caught.value)
    assert "and 3 more" in str(caught.value)
    assert "skip_bad=True (--skip-bad)" in str(caught.value)
    data = ClassDataset.from_folder(root, skip_bad=True)
    assert len(data) == 5
    assert [Path(bad.where).name for bad in data.skipped] == [f"bad{i:02d}.jpg" for i in range(11)]


def test_progress_reaches_the_end_and_an_interruption_gets_out(tmp_path: Path, tree: Tree) -> None:
    root = write_tree(tmp_path / "pets", tree)
    steps: list[tuple[int, int]] = []
    ClassDataset.from_folder(root, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(i, 5) for i in range(1, 6)]
    steps.clear()
    ClassDataset.from_folder(root, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(5, 5)]

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        ClassDataset.from_folder(root, progress=interrupt)
    assert threading.active_count() == before


def test_subset_keeps_content_order_and_equals_a_fresh_data_set(tmp_path: Path, tree: Tree, monkeypatch) -> None:
    data = ClassDataset.from_folder(write_tree(tmp_path / "pets", tree))
    decoded = count_decodes(monkeypatch)
    dogs = data.subset(["dog"], name="dogs")
    assert decoded == []
    assert (dogs.name, dogs.classes, dogs.label.tolist()) == ("dogs", ("dog",), [0, 0])
    fresh = ClassDataset.from_arrays(np.stack([tree["dog/2.PNG"], tree["dog/1.png"]]), ["x", "x"])
    assert dogs.manifest == fresh.manifest
    for i in range(2):
        np.testing.assert_array_equal(dogs.image(i), fresh.image(i))
    assert data.subset(["dog", "cat", "dog"]).manifest == data.manifest
    with pytest.raises(DataError, match="no class 'dgo'; did you mean 'dog'"):
        data.subset(["cat", "dgo"])
    with pytest.raises(DataError, match="no class"):
        data.subset(["zzz"])
    with pytest.raises(DataError, match="at least one class"):
        data.subset([])


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
        (grey / 255, [0] * 4, None, r"uint8 of shape \(n, H, W, 3\).*got float64"),
        (np.zeros((4, 3, 8, 8), np.uint8), [0] * 4, None, "put the channels last"),
        (grey, [0] * 3, None, "one per image: 4 images"),
        (grey, [0, 1, 2, 0], ["a", "b"], r"labels must be in 0\.\.1, got 0\.\.2"),
        (grey, ["a"] * 4, ["a", "b"], "whole numbers"),
        (grey, [0] * 4, ["a", "a"], "class_names must differ"),
        (grey[:0], [], None, "has no pictures"),
        (grey[:, :4], [0] * 4, None, "at least 8 pixels, got 8x4"),
    ):
        with pytest.raises(DataError, match=words):
            ClassDataset.from_arrays(images, labels, names)


def test_memory_mapped_arrays_are_read_row_by_row(tmp_path: Path) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    np.save(tmp_path / "pixels.npy", pixels)
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    data = ClassDataset.from_arrays(mapped, [0, 0, 0, 1, 1, 1])
    assert data.manifest == ClassDataset.from_arrays(pixels, [0, 0, 0, 1, 1, 1]).manifest
    image = ArraySource(mapped).read(3)
    assert type(image) is np.ndarray
    assert image.flags.writeable


def test_a_subset_still_tells_what_was_left_out(tmp_path: Path, tree: Tree) -> None:
    root = write_tree(tmp_path / "pets", tree)
    (root / "cat" / "bad.png").write_bytes(b"no picture")
    (root / "cat" / "notes.txt").write_text("hello")
    part = ClassDataset.from_folder(root, skip_bad=True).subset(["dog"])
    assert ([Path(bad.where).name for bad in part.skipped], part.ignored) == (["bad.png"], 1)
