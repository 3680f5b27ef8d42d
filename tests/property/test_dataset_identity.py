"""The same pictures are the same data set however they are packed and named; any other pictures are another one."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from glocal.research.data.dataset import ClassDataset

LOSSLESS = {".png": "PNG", ".bmp": "BMP", ".tif": "TIFF", ".ppm": "PPM"}
Classes = list[np.ndarray]  # one array (n, H, W, 3) per class


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@st.composite
def pictures(draw: st.DrawFn) -> Classes:
    """2 to 4 unequal classes; few grey levels and a small alphabet of pictures, so that duplicates happen."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    alphabet = rng.integers(0, 256, (draw(st.integers(2, 8)), 8, 10, 3), dtype=np.uint8)
    counts = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    return [alphabet[rng.integers(0, len(alphabet), n)] for n in counts]


names = st.lists(
    st.text("abcdefgxyz0129_ äé", min_size=1, max_size=12).filter(lambda name: name.strip() == name),
    min_size=20,
    max_size=20,
    unique=True,
)


def manifest_by_hand(classes: Classes) -> str:
    """The definition, written out once more."""
    of_class = []
    for images in classes:
        digests = sorted(hashlib.sha256(b"8x10:" + image.tobytes()).digest() for image in images)
        of_class.append(hashlib.sha256(b"".join(digests)).digest())
    return hashlib.sha256(b"".join(sorted(of_class))).hexdigest()


def encoded(image: np.ndarray, suffix: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, LOSSLESS[suffix])
    return buffer.getvalue()


def as_files(classes: Classes, labels: list[str], shuffle: int) -> list[tuple[str, str, bytes]]:
    """(class name, file name, content) in any order, in any lossless format."""
    rng = np.random.default_rng(shuffle)
    files = []
    for label, images in zip(labels, classes, strict=False):
        numbers = rng.permutation(len(images))
        for number, image in zip(numbers, images, strict=True):
            suffix = str(rng.choice(list(LOSSLESS)))
            files.append((label, f"p{number}{suffix}", encoded(image, suffix)))
    return [files[i] for i in rng.permutation(len(files))]


def as_array(classes: Classes, shuffle: int) -> ClassDataset:
    label = np.repeat(np.arange(len(classes)), [len(images) for images in classes])
    order = np.random.default_rng(shuffle).permutation(len(label))
    return ClassDataset.from_arrays(np.concatenate(classes)[order], label[order])


def as_folder(root: Path, classes: Classes, labels: list[str], shuffle: int) -> ClassDataset:
    for label, name, content in as_files(classes, labels, shuffle):
        (root / "folder" / label).mkdir(parents=True, exist_ok=True)
        (root / "folder" / label / name).write_bytes(content)
    return ClassDataset.from_folder(root / "folder")


def as_zip(root: Path, classes: Classes, labels: list[str], shuffle: int, compression: int) -> ClassDataset:
    with zipfile.ZipFile(root / "packed.zip", "w", compression) as archive:
        for label, name, content in as_files(classes, labels, shuffle):
            archive.writestr(f"{label}/{name}", content)
    return ClassDataset.from_folder(root / "packed.zip")


def as_csv(root: Path, classes: Classes, labels: list[str], shuffle: int) -> ClassDataset:
    (root / "flat").mkdir()
    with (root / "flat" / "list.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["filename", "label"])
        for i, (label, name, content) in enumerate(as_files(classes, labels, shuffle)):
            (root / "flat" / f"{i}{os.path.splitext(name)[1]}").write_bytes(content)
            writer.writerow([f"{i}{os.path.splitext(name)[1]}", label])
    return ClassDataset.from_csv(root / "flat" / "list.csv")


@given(pictures(), names, st.integers(0, 1000), st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
@settings(max_examples=30, deadline=None)
def test_packing_and_naming_do_not_matter(classes: Classes, labels: list[str], shuffle: int, compression: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        packed = [
            as_array(classes, shuffle),
            as_array(classes[::-1], shuffle + 1),
            as_folder(root, classes, labels[:4], shuffle),
            as_zip(root, classes, labels[4:8], shuffle + 2, compression),
            as_csv(root, classes[::-1], labels[8:12], shuffle + 3),
        ]
        assert {data.manifest for data in packed} == {manifest_by_hand(classes)}
        first = packed[0]
        for data in packed[1:]:
            np.testing.assert_array_equal(data.label, first.label)
            np.testing.assert_array_equal(data.digest, first.digest)
            for i in range(len(first)):
                np.testing.assert_array_equal(data.image(i), first.image(i))


@given(pictures(), st.data())
@settings(max_examples=60, deadline=None)
def test_one_pixel_one_picture_or_one_class_more_is_another_data_set(classes: Classes, data: st.DataObject) -> None:
    before = as_array(classes, 0).manifest
    c = data.draw(st.integers(0, len(classes) - 1), "class")
    i = data.draw(st.integers(0, len(classes[c]) - 1), "picture")
    spot = (data.draw(st.integers(0, 7)), data.draw(st.integers(0, 9)), data.draw(st.integers(0, 2)))

    changed = [images.copy() for images in classes]
    changed[c][i][spot] ^= data.draw(st.integers(1, 255), "change")
    added = [*classes[:c], np.concatenate([classes[c], changed[c][i : i + 1]]), *classes[c + 1 :]]
    removed = [*classes[:c], np.delete(classes[c], i, axis=0), *classes[c + 1 :]]
    apart = [*removed, classes[c][i : i + 1]]  # the same pictures, one of them in a class of its own
    others = [changed, added, [images for images in removed if len(images)]]
    if len(classes[c]) > 1:
        others.append(apart)
    for other in others:
        assert as_array(other, 0).manifest != before


@given(pictures(), st.data())
@settings(max_examples=30, deadline=None)
def test_a_subset_is_the_data_set_of_those_classes_alone(classes: Classes, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(range(len(classes))), min_size=1, unique=True))
    part = as_array(classes, 0).subset([str(c) for c in chosen])
    alone = as_array([classes[c] for c in chosen], 1)
    assert part.manifest == alone.manifest
    for i in range(len(alone)):
        np.testing.assert_array_equal(part.image(i), alone.image(i))


def test_shape_is_part_of_a_picture() -> None:
    pixels = np.arange(8 * 16 * 3, dtype=np.uint8)
    wide, tall = pixels.reshape(1, 8, 16, 3), pixels.reshape(1, 16, 8, 3)
    assert ClassDataset.from_arrays(wide, ["a"]).manifest != ClassDataset.from_arrays(tall, ["a"]).manifest
