"""Review: grouping by likeness; pictures that were asked about, bounded, on the disk, the same after a restart."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from faults import full, read_only
from glocal.recognizer.features import Views
from glocal.recognizer.photos.images import Preprocess
from glocal.recognizer.photos.sources import Source, take
from glocal.serve import recent_queries
from glocal.serve.groups import WITHOUT_PAIRS, group, group_id, likeness
from glocal.serve.log import Filter
from glocal.serve.recent_queries import Query, RecentQueries
from refusal import refused
from waiting import wait_for


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


def query(seed: int, *, name: str = "a.png", asked: float | None = None) -> Query:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
    picture = take(Source(name, lambda: pixels), Preprocess(16))
    local = rng.standard_normal((1, 3, 3, 2)).astype(np.float16).transpose(0, 3, 1, 2)  # channels last
    views = Views(rng.standard_normal((1, 4)).astype(np.float32), local)
    return Query(picture, views, float(seed) if asked is None else asked)  # type: ignore[arg-type]


@contextmanager
def opened(folder: Path, model: str = "m", **settings: int) -> Iterator[RecentQueries]:
    found = RecentQueries(folder, **settings)
    found.open(model)
    yield found
    found.close()


def ids(some: RecentQueries) -> list[str]:
    return [each.id for each in some.newest_first()]


def test_the_newest_stay(tmp_path: Path) -> None:
    with opened(tmp_path, most=3) as some:
        for i in range(5):
            some.add(query(i), "m")
        some.add(query(2, name="again.png", asked=9), "m")
        assert ids(some) == [query(i).id for i in (2, 4, 3)]
        assert some.newest_first()[0].picture.name == "again.png"
    assert len(list(tmp_path.iterdir())) == 3


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as some:
        for i in range(3):
            some.add(query(i, name="ä/\ud800 b.png"), "m")
    with opened(tmp_path) as again:
        assert ids(again) == [query(i).id for i in (2, 1, 0)]
        one, same = again.get(query(1).id), query(1)
    assert one is not None
    assert np.array_equal(one.picture.pixels, same.picture.pixels)
    assert np.array_equal(one.picture.signature, same.picture.signature)
    assert np.array_equal(one.views.vec, same.views.vec)
    assert one.views.local is not None
    assert np.array_equal(one.views.local, same.views.local)  # type: ignore[arg-type]
    assert one.views.local.dtype == np.float16


def test_views_of_another_model_are_forgotten(tmp_path: Path) -> None:
    with opened(tmp_path) as some:
        some.add(query(1), "m")
        some.add(query(2), "another")
        assert ids(some) == [query(1).id]
    with opened(tmp_path, "another") as other:
        assert ids(other) == []
    assert list(tmp_path.iterdir()) == []


def test_they_are_written_a_moment_later_and_forgotten_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_queries, "QUIET", 0.02)
    with opened(tmp_path) as some:
        some.add(query(1), "m")
        wait_for(lambda: list(tmp_path.glob("*.safetensors")))
        assert len(list(tmp_path.glob("*.safetensors"))) == 1
        assert some.forget(query(1).id)
        assert not some.forget(query(1).id)
        assert list(tmp_path.iterdir()) == []


def test_damaged_files_are_cleared_away(tmp_path: Path) -> None:
    with opened(tmp_path) as some:
        some.add(query(1), "m")
        some.add(query(2), "m")
    first, _ = sorted(tmp_path.iterdir())
    first.write_bytes(first.read_bytes()[:-7])
    (tmp_path / "other.safetensors").write_bytes(b"x")
    deep = save({"vec": np.zeros(1)}, metadata={"about": "[" * 50_000})
    (tmp_path / "deep.safetensors").write_bytes(deep)
    (tmp_path / "readme").write_bytes(b"x")
    with opened(tmp_path) as again:
        assert len(ids(again)) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_what_cannot_be_compared_is_cleared_away(tmp_path: Path) -> None:
    """Written by somebody else: numbers that are none, and views of another shape than those of the photos."""
    bad = query(2)
    bad.views.vec[0, 0] = np.nan
    with opened(tmp_path) as some:
        for each in (query(1), bad, query(3)):
            some.add(each, "m")
    again = RecentQueries(tmp_path)
    again.open("m", fits=lambda each: not np.array_equal(each.views.vec, query(3).views.vec))
    assert ids(again) == [query(1).id]
    again.close()


@pytest.mark.parametrize("shape", [(16, 16), (16, 16, 1), (16, 16, 4), (16, 12, 3), (0, 0, 3), (2, 16, 16, 3)])
def test_pixels_that_are_no_picture_are_cleared_away(tmp_path: Path, shape: tuple[int, ...]) -> None:
    good = query(1)
    pixels = np.zeros(shape, np.uint8)
    odd = replace(good.picture, pixels=pixels, digest=hashlib.sha256(pixels.data).hexdigest())
    with opened(tmp_path) as some:
        some.add(good, "m")
        some.add(replace(good, picture=odd), "m")
    assert len(list(tmp_path.iterdir())) == 2
    with opened(tmp_path) as again:
        assert ids(again) == [good.id]


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer tells of it, once as the server logs, and goes on; when there is room, all of it is written."""
    monkeypatch.setattr(recent_queries, "QUIET", 0.02)
    tries, write = [], recent_queries._write

    def still_full(*given: object) -> None:
        tries.append(given)
        full()

    with opened(tmp_path) as some, caplog_of("glocal.serve") as told:
        monkeypatch.setattr(recent_queries, "_write", still_full)
        some.add(query(1), "m")
        wait_for(lambda: len(tries) > 2)
        assert some.forget(query(1).id)  # needs no room
        some.add(query(2), "m")
        monkeypatch.setattr(recent_queries, "_write", write)
        wait_for(lambda: bool(list(tmp_path.glob("*.safetensors"))))
        assert len(told) == 1
    with opened(tmp_path) as again:
        assert ids(again) == [query(2).id]


def test_what_cannot_be_deleted_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as some:
        some.add(query(1), "m")
        some.write()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", read_only)
            with refused("not-written", "Read-only file system"):
                some.forget(query(1).id)
        assert ids(some) == [query(1).id]
        assert some.forget(query(1).id)


def test_a_disk_that_is_full_to_the_end_does_not_stop_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as some:
        monkeypatch.setattr(recent_queries, "_write", full)
        some.add(query(1), "m")


@contextmanager
def caplog_of(name: str) -> Iterator[list[logging.LogRecord]]:
    """What is logged, by any thread."""
    told: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.addFilter(Filter())
    handler.emit = told.append  # type: ignore[method-assign]
    logging.getLogger(name).addHandler(handler)
    try:
        yield told
    finally:
        logging.getLogger(name).removeHandler(handler)
