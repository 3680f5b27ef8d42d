"""Groups by likeness, against average linkage of scipy; the level; which photos to label next."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage

from glocal.recognizer.groups import BETWEEN, SHARE, WITHIN, group, level_of
from glocal.recognizer.suggest import choose
from glocal.serve.groups import group_id


def blobs(n: int, each: int, width: int = 8, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(n), each)
    centre = np.eye(width, dtype=np.float32)[label % width] if n <= width else rng.standard_normal((n, width))[label]
    return (centre + noise * rng.standard_normal((n * each, width))).astype(np.float32), label


def cosines(vectors: np.ndarray) -> np.ndarray:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def test_things_alike_are_together_the_largest_group_first() -> None:
    vectors, label = blobs(3, 4)
    order = np.random.default_rng(1).permutation(len(label) - 2)  # the last class is the smallest
    groups = group(vectors[order], 0.7)
    assert [len(rows) for rows in groups] == [4, 4, 2]
    assert all(len({label[order][i] for i in rows}) == 1 for rows in groups)
    # Their names do not depend on the order.
    assert group_id(["a", "b"]) == group_id(["b", "a"]) != group_id(["a", "c"])
    assert len(group_id(["a"])) == 16


@pytest.mark.parametrize("level", [0.1, 0.3, 0.5, 0.8])
def test_it_is_average_linkage(level: float) -> None:
    vectors, _ = blobs(20, 7, width=12, noise=0.5)
    slow = fcluster(
        linkage((1 - cosines(vectors.astype(np.float64)))[np.triu_indices(140, 1)], "average"), 1 - level, "distance"
    )
    expected = {frozenset(np.flatnonzero(slow == c).tolist()) for c in np.unique(slow)}
    assert {frozenset(rows) for rows in group(vectors, level)} == expected
    assert 1 < len(expected) < 140


def test_a_chain_of_small_steps_is_no_group() -> None:
    angles = np.linspace(0, np.pi / 2, 10)
    chain = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    level = float(chain[0] @ chain[2])
    groups = group(chain, level)
    assert len(groups) > 2
    for rows in groups:
        pairs = [chain[i] @ chain[j] for i in rows for j in rows if i < j]
        assert not pairs or np.mean(pairs) >= level


@settings(deadline=None)
@given(st.integers(0, 12), st.integers(0, 1000), st.floats(-1, 1), st.integers(0, 3))
def test_every_photo_is_in_one_group_in_any_order(n: int, seed: int, level: float, copies: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, 3)).astype(np.float32)
    vectors = np.concatenate([vectors, np.repeat(vectors[:1], copies, axis=0)])
    groups = group(vectors, level)
    assert sorted(i for rows in groups for i in rows) == list(range(len(vectors)))
    order = rng.permutation(len(vectors))
    again = {frozenset(order[rows].tolist()) for rows in group(vectors[order], level)}
    assert again == {frozenset(rows) for rows in groups}
    assert len(group(vectors, -1.1)) == min(n, 1)
    if n and copies:
        assert next(rows for rows in groups if 0 in rows)[-copies:] == list(range(n, n + copies))


def test_many_photos_are_grouped_along_the_main_directions() -> None:
    """Beyond 5,000 photos, and with more photos in a group than each has neighbours."""
    vectors, label = blobs(130, 40, width=300, noise=0.03)
    groups = group(vectors, 0.5)
    assert len(groups) == 130
    assert all(len(set(label[rows].tolist())) == 1 for rows in groups)


def test_the_level_lies_between_what_classes_and_strangers_have_in_common() -> None:
    vectors, label = blobs(3, 4)
    cosine, same = cosines(vectors), label[:, None] == label
    within, between = cosine[same & ~np.eye(12, dtype=bool)].mean(), cosine[~same].mean()
    assert level_of(vectors, label) == pytest.approx(between + SHARE * (within - between), abs=1e-5)
    # One photo of each class: the usual distance above that of the classes.  One class: below that of its photos.
    one_each = cosine[::4, ::4][np.triu_indices(3, k=1)].mean()
    assert level_of(vectors[::4], label[::4]) == pytest.approx(one_each + SHARE * (WITHIN - BETWEEN), abs=1e-5)
    one_class = cosine[:4, :4][np.triu_indices(4, k=1)].mean()
    assert level_of(vectors[:4], label[:4]) == pytest.approx(one_class - (1 - SHARE) * (WITHIN - BETWEEN), abs=1e-5)
    assert level_of(vectors[:1], label[:1]) == pytest.approx(BETWEEN + SHARE * (WITHIN - BETWEEN))
    # Classes of the same photos: identical photos are still a group.
    assert group(vectors[[0, 0, 5]], level_of(vectors[[0, 0]], label[[0, 0]])) == [[0, 1], [2]]


def test_the_photos_to_label_cover_the_folder() -> None:
    vectors, label = blobs(4, 6)
    assert sorted(label[choose(vectors, 4)].tolist()) == [0, 1, 2, 3]
    assert len(set(choose(vectors, 100))) == 24
    # What has a label is half covered; what is likely none of the classes hardly counts.
    assert sorted(label[choose(vectors, 2, labelled=vectors[:12])].tolist()) == [2, 3]
    weight = np.where(label == 3, 1.0, 0.1)
    assert label[choose(vectors, 1, weight=weight)].tolist() == [3]
