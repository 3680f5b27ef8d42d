"""Grouping by likeness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glocal.serve.groups import WITHOUT_PAIRS, group, group_id, likeness


def blobs(n: int, each: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(n), each)
    return np.eye(8, dtype=np.float32)[label] + 0.1 * rng.standard_normal((n * each, 8)).astype(np.float32), label


def test_things_alike_are_together_the_largest_group_first() -> None:
    vectors, label = blobs(3, 4)
    order = np.random.default_rng(1).permutation(len(label) - 2)  # the last class is the smallest
    found = group(vectors[order], 0.7)
    assert [len(rows) for rows in found] == [4, 4, 2]
    assert all(len({label[order][i] for i in rows}) == 1 for rows in found)


def test_a_chain_of_small_steps_is_no_group() -> None:
    angles = np.linspace(0, np.pi / 2, 10)
    chain = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    level = float(chain[0] @ chain[2])
    found = group(chain, level)
    assert len(found) > 2
    for rows in found:
        pairs = [chain[i] @ chain[j] for i in rows for j in rows if i < j]
        assert not pairs or np.mean(pairs) >= level


@given(st.integers(0, 12), st.integers(0, 1000), st.floats(-1, 1))
def test_every_picture_is_in_one_group(n: int, seed: int, level: float) -> None:
    vectors = np.random.default_rng(seed).standard_normal((n, 3)).astype(np.float32)
    found = group(vectors, level)
    assert sorted(i for rows in found for i in rows) == list(range(n))
    assert found == group(vectors, level)
    assert len(group(vectors, -1.1)) == min(n, 1)
    assert len(group(vectors, 1.1)) == n


def test_the_level_is_learned_from_the_classes() -> None:
    vectors, label = blobs(3, 4)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = unit @ unit.T
    same = label[:, None] == label
    level = likeness(vectors, label)
    assert cosine[~same].max() < level <= cosine[same & ~np.eye(len(label), dtype=bool)].min()
    one_each = cosine[::4, ::4][np.triu_indices(3, k=1)]
    assert likeness(vectors[::4], label[::4]) == pytest.approx(one_each.max())  # one photo per class
    assert likeness(vectors[:1], label[:1]) == WITHOUT_PAIRS
    assert -1 <= likeness(vectors[:4], label[:4]) <= 1  # one class


def test_ids_do_not_depend_on_the_order() -> None:
    assert group_id(["a", "b"]) == group_id(["b", "a"]) != group_id(["a", "c"])
    assert len(group_id(["a"])) == 16
