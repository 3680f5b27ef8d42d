"""Recent photos: bounded, and with a folder the same after a restart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from faults import disk_of, read_only
from glocal.recognizer.features import Features
from glocal.recognizer.photos.images import Preprocess
from glocal.recognizer.photos.sources import Source, take
from glocal.serve.recent_queries import Query, RecentQueries
from refusal import refused


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
