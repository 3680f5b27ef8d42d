"""Matching patches, against loops."""

from __future__ import annotations

import numpy as np

from glocal_runtime.views import FOREIGN, Array, Views, best_cosine, class_maps


def loop_best(local: Array, other: Array) -> list[float]:
    """Of one map (D, H, W) against another."""
    a, b = (x.reshape(len(x), -1).T for x in (local, other))
    return [max(float(u @ v / np.linalg.norm(u) / np.linalg.norm(v)) for v in b) for u in a]


def support(seed: int = 0) -> tuple[Views, Array]:
    rng = np.random.default_rng(seed)
    label = np.array([0, 0, 0, 1, 1, 2])
    local = rng.standard_normal((6, 5, 2, 3)) + label.reshape(-1, 1, 1, 1)
    return Views(rng.standard_normal((6, 4)), local), label


def test_the_level_is_what_nine_of_ten_foreign_patches_stay_below() -> None:
    views, label = support()
    maps = class_maps(views, label)
    means = [views.local[label == c].mean(axis=0) for c in range(3)]
    foreign = [x for c in range(3) for i in range(6) if label[i] != c for x in loop_best(views.local[i], means[c])]
    assert maps is not None
    assert maps.n_patches == 6
    assert abs(maps.level - np.quantile(foreign, FOREIGN)) < 1e-12


def test_matching_counts_patches_above_the_level_of_that_class() -> None:
    views, label = support()
    maps = class_maps(views, label)
    query, of = np.random.default_rng(7).standard_normal((4, 5, 2, 3)) + 1, np.array([2, 0, 1, 1])
    found = maps.match(query, of)
    for i in range(4):
        mean = views.local[label == of[i]].mean(axis=0)
        assert found[i].tolist() == [x >= maps.level for x in loop_best(query[i], mean)]
    assert 0 < found.sum() < found.size


def test_a_support_photo_is_matched_without_itself() -> None:
    views, label = support()
    maps = class_maps(views, label)
    rows = np.array([1, 4])
    found = maps.match_without(views.local[rows], label[rows])
    rest = [views.local[[0, 2]].mean(axis=0), views.local[3]]
    for i, row in enumerate(rows.tolist()):
        assert found[i].tolist() == [x >= maps.level for x in loop_best(views.local[row], rest[i])]


def test_classes_in_any_order_have_their_means() -> None:
    views, _ = support()
    label = np.array([2, 0, 1, 0, 2, 2])
    maps = class_maps(views, label)
    for c in range(3):
        np.testing.assert_allclose(maps.mean[c], views.local[label == c].mean(axis=0), atol=1e-12)


def test_nothing_to_match_without_maps_or_rivals() -> None:
    views, label = support()
    assert class_maps(Views(views.vec), label) is None
    assert class_maps(views.rows(label == 0), label[label == 0]) is None


def test_a_patch_is_its_own_best() -> None:
    views, _ = support()
    np.testing.assert_allclose(best_cosine(views.local, views.local), np.ones((6, 6)), atol=1e-12)
