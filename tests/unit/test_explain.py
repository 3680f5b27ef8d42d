"""Overlays of answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from glocal_runtime.explain import explain, nearest_photos, partners, write_explanation
from glocal_runtime.support import Bank
from glocal_runtime.views import Array, Views
from photos import recognizer, some


def bank(vec: Array, local: Array | None = None) -> Bank:
    return Bank((), Views(vec, local), np.empty(0, np.uint8))


def test_partners_are_the_patches_most_alike() -> None:
    local = np.random.default_rng(0).standard_normal((3, 6, 2, 3))
    query, photos = local[2].copy(), bank(local.reshape(3, -1), local)
    query[:, 0, 0], query[:, 1, 2] = local[0][:, 1, 1], 2 * local[1][:, 0, 2]
    found = {match.patch: (match.photo, match.partner) for match in partners(query, photos, [1, 0, 2], range(6))}
    assert found == {0: (0, 4), 1: (2, 1), 2: (2, 2), 3: (2, 3), 4: (2, 4), 5: (1, 2)}
    assert [match.patch for match in partners(query, photos, [1, 0, 2], {4})] == [4]


def test_the_photo_most_alike_comes_first() -> None:
    assert nearest_photos(Views(np.array([[0.1, 0.9, 0.3]])), bank(np.eye(3))) == [1, 2, 0]


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


def test_a_method_without_patches_shows_photos_alone() -> None:
    who = recognizer(model="embedded-protonet")
    [found] = who.batches(some("one", 20, 21))
    assert who.enrolled.matching_patches(found.batch.views, "one") is None
    image = np.asarray(explain(who, found.batch, 0, found.answers[0])).astype(int)
    assert (abs(image - [217, 72, 15]).sum(axis=2) < 30).sum() == 0
