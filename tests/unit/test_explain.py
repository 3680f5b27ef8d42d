"""Matching patches, against loops, and overlays of answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from converted import model_file
from glocal.recognizer import Recognizer
from glocal.recognizer.explanation import PHOTO, explain, nearest_photos, partners, write_explanation
from glocal.recognizer.features import FOREIGN, Array, Features, class_maps
from glocal.recognizer.support import Bank
from photos import recognizer, some

EMPTY = (0xD0, 0xD0, 0xD0)


def loop_best(local: Array, other: Array) -> list[float]:
    """Of one map (D, H, W) against another."""
    a, b = (x.reshape(len(x), -1).T for x in (local, other))
    return [max(float(u @ v / np.linalg.norm(u) / np.linalg.norm(v)) for v in b) for u in a]


def support(seed: int = 0) -> tuple[Features, Array]:
    rng = np.random.default_rng(seed)
    label = np.array([0, 0, 0, 1, 1, 2])
    local = rng.standard_normal((6, 5, 2, 3)) + label.reshape(-1, 1, 1, 1)
    return Features(rng.standard_normal((6, 4)), (local,)), label


def test_the_level_is_what_nine_of_ten_foreign_patches_stay_below() -> None:
    views, label = support()
    maps = class_maps(views, label)
    means = [views.map[label == c].mean(axis=0) for c in range(3)]
    foreign = [x for c in range(3) for i in range(6) if label[i] != c for x in loop_best(views.map[i], means[c])]
    assert maps is not None
    assert maps.n_patches == 6
    assert abs(maps.level - np.quantile(foreign, FOREIGN)) < 1e-12


def test_matching_counts_patches_above_the_level_and_a_support_photo_does_without_itself() -> None:
    views, label = support()
    maps = class_maps(views, label)
    query, of = np.random.default_rng(7).standard_normal((4, 5, 2, 3)) + 1, np.array([2, 0, 1, 1])
    found = maps.match(query, of)
    for i in range(4):
        mean = views.map[label == of[i]].mean(axis=0)
        assert found[i].tolist() == [x >= maps.level for x in loop_best(query[i], mean)]
    assert 0 < found.sum() < found.size
    views, label = support()
    maps = class_maps(views, label)
    rows = np.array([1, 4])
    found = maps.match_without(views.map[rows], label[rows])
    rest = [views.map[[0, 2]].mean(axis=0), views.map[3]]
    for i, row in enumerate(rows.tolist()):
        assert found[i].tolist() == [x >= maps.level for x in loop_best(views.map[row], rest[i])]


def bank(vec: Array, local: Array | None = None) -> Bank:
    return Bank((), Features(vec, () if local is None else (local,)), np.empty(0, np.uint8))


def test_partners_are_the_patches_most_alike_and_that_photo_comes_first() -> None:
    local = np.random.default_rng(0).standard_normal((3, 6, 2, 3))
    query, photos = local[2].copy(), bank(local.reshape(3, -1), local)
    query[:, 0, 0], query[:, 1, 2] = local[0][:, 1, 1], 2 * local[1][:, 0, 2]
    found = {match.patch: (match.photo, match.partner) for match in partners(query, photos, [1, 0, 2], range(6))}
    assert found == {0: (0, 4), 1: (2, 1), 2: (2, 2), 3: (2, 3), 4: (2, 4), 5: (1, 2)}
    assert [match.patch for match in partners(query, photos, [1, 0, 2], {4})] == [4]
    assert nearest_photos(Features(np.array([[0.1, 0.9, 0.3]])), bank(np.eye(3))) == [1, 2, 0]


def test_an_overlay_shows_the_query_and_frames_what_matches(tmp_path: Path) -> None:
    who = recognizer()
    [found] = who.batches([*some("one", 20, 21), *some("six", 20, 21)])
    images = [explain(who, found.batch, i, answer) for i, answer in enumerate(found.answers)]
    known, unknown = (np.asarray(image).astype(int) for image in images)
    assert known.shape[2] == 3
    orange = [(abs(image - [217, 72, 15]).sum(axis=2) < 30).sum() for image in (known, unknown)]
    assert orange[0] > 500, "frames and lines"
    path = write_explanation(tmp_path / "why", 7, found.answers[0], images[0])
    assert path.name == "00007-_picture_0_.png"
    with Image.open(path) as image:
        assert image.size == images[0].size


def test_a_thumbnail_that_is_cut_short_is_an_empty_place(tmp_path: Path) -> None:
    """Its header is whole, and more is not looked at when a file is opened."""
    whole, cut = recognizer(), recognizer()
    bank = cut.contents.support.classes["one"]
    photos = tuple(replace(each, thumbnail=each.thumbnail[: len(each.thumbnail) * 3 // 4]) for each in bank.photos)
    cut.contents = replace(cut.contents, support=cut.contents.support.with_class("one", replace(bank, photos=photos)))
    cut.save(tmp_path / "cut.glocal")
    images = []
    for who in (whole, Recognizer.load(tmp_path / "cut.glocal", device="cpu")):
        [found] = who.batches(some("one", 20, 21))
        images.append(np.asarray(explain(who, found.batch, 0, found.answers[0])))
    assert images[0].shape == images[1].shape
    assert (images[1] == EMPTY).all(axis=2).sum() > 2 * PHOTO**2 > (images[0] == EMPTY).all(axis=2).sum()


def test_a_method_without_patches_shows_photos_alone() -> None:
    who = recognizer(model=model_file("embedded-protonet"))
    [found] = who.batches(some("one", 20, 21))
    assert who.enrolled.matching_patches(found.batch.features, "one") is None
    image = np.asarray(explain(who, found.batch, 0, found.answers[0])).astype(int)
    assert (abs(image - [217, 72, 15]).sum(axis=2) < 30).sum() == 0
