"""Pictures that were asked about: bounded, on the disk, the same after a restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from glocal.serve import recent_queries
from glocal.serve.recent_queries import Query, RecentQueries
from glocal.serve.workspace import bank_of
from glocal_runtime.photos import Source, take
from glocal_runtime.preprocess import Preprocess
from glocal_runtime.views import Views


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
        until = time.monotonic() + 20
        while not list(tmp_path.glob("*.safetensors")) and time.monotonic() < until:
            time.sleep(0.01)
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
    (tmp_path / "readme").write_bytes(b"x")
    with opened(tmp_path) as again:
        assert len(ids(again)) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_bank_of_them_has_their_rows_in_order() -> None:
    some = [query(3), query(1)]
    bank = bank_of(some)
    assert [photo.digest for photo in bank.photos] == [each.id for each in some]
    assert np.array_equal(bank.views.vec, np.concatenate([each.views.vec for each in some]))
    assert bank.signature.shape == (2, 256)
