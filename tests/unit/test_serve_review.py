"""Review: grouping by likeness; recent photos, bounded, and with a folder the same after a restart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import disk_of, read_only
from glocal.recognizer.features import Features
from glocal.recognizer.photos.images import Preprocess
from glocal.recognizer.photos.sources import Source, take
from glocal.serve.groups import WITHOUT_PAIRS, group, group_id, likeness
from glocal.serve.recent_queries import Query, RecentQueries
from refusal import refused


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
    # Their names do not depend on the order.
    assert group_id(["a", "b"]) == group_id(["b", "a"]) != group_id(["a", "c"])
    assert len(group_id(["a"])) == 16


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


def query(seed: int, *, name: str = "a.png") -> Query:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
    picture = take(Source(name, lambda: pixels), Preprocess(16))
    return Query(picture, Features(rng.standard_normal((1, 4)).astype(np.float32)))  # type: ignore[arg-type]


def opened(folder: Path | None, model: str = "m", **settings: int) -> RecentQueries:
    recent = RecentQueries(folder, **settings)
    views = query(0).views
    recent.restore([Query(picture, views) for picture in recent.read()], model)
    return recent


def ids(some: RecentQueries) -> list[str]:
    return [each.id for each in some.newest_first()]


@pytest.mark.parametrize("kept", [True, False])
def test_the_newest_stay(tmp_path: Path, kept: bool) -> None:
    recent = opened(tmp_path if kept else None, most=3)
    for i in range(5):
        recent.add(query(i), "m")
    recent.add(query(2, name="again.png"), "m")
    assert ids(recent) == [query(i).id for i in (2, 4, 3)]
    assert recent.newest_first()[0].picture.name == "again.png"
    assert len(list(tmp_path.iterdir())) == (3 if kept else 0)


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    recent = opened(tmp_path)
    for i in range(3):
        recent.add(query(i, name="ä/ b.png"), "m")
    again = opened(tmp_path)
    assert ids(again) == [query(i).id for i in (2, 1, 0)]
    one, same = again.get(query(1).id), query(1, name="ä/ b.png")
    assert one is not None
    assert one.picture.name == same.picture.name
    assert np.array_equal(one.picture.pixels, same.picture.pixels)
    assert np.array_equal(one.picture.signature, same.picture.signature)


def test_features_of_another_model_are_forgotten(tmp_path: Path) -> None:
    recent = opened(tmp_path)
    recent.add(query(1), "m")
    recent.add(query(2), "another")
    assert ids(recent) == [query(1).id]
    recent.belong_to("another")
    assert ids(recent) == []
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_none_of_ours_are_left_alone(tmp_path: Path) -> None:
    recent = opened(tmp_path)
    for i in (1, 2):
        recent.add(query(i), "m")
    first = min(tmp_path.iterdir())
    first.write_bytes(first.read_bytes()[:200])
    for name in ("readme", "other.png"):
        (tmp_path / name).write_bytes(b"x")
    again = opened(tmp_path)
    assert ids(again) == [query(2).id]
    again.belong_to("another")
    assert {path.name for path in tmp_path.iterdir()} == {"readme", "other.png"}


def test_a_full_disk_costs_the_copy_and_not_the_photo(tmp_path: Path) -> None:
    recent = opened(tmp_path)
    with disk_of(20):
        recent.add(query(1), "m")
    recent.add(query(2), "m")
    assert ids(recent) == [query(2).id, query(1).id]
    assert ids(opened(tmp_path)) == [query(2).id]


def test_what_cannot_be_deleted_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recent = opened(tmp_path)
    recent.add(query(1), "m")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", read_only)
        with refused("not-written", "Read-only file system"):
            recent.forget(query(1).id)
    assert ids(recent) == [query(1).id]
    assert recent.forget(query(1).id)
    assert not recent.forget(query(1).id)
    assert list(tmp_path.iterdir()) == []
