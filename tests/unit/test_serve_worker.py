"""Many requests, one pass through the model: nothing lost, nothing crossed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from glocal.recognizer import Recognizer
from glocal.recognizer.photos.sources import Picture, Unreadable, as_source, take
from glocal.serve.server import Worker
from glocal.serve.snapshot import QueryAnswer, Snapshot
from photos import some
from serving import tiny_file
from waiting import PATIENCE


class Gated(Snapshot):
    """Answers once its gate is open, so that the requests behind the first one meet in the queue."""

    gate = threading.Event()

    def predict(self, *given: Any) -> Any:
        self.gate.wait(PATIENCE)
        return super().predict(*given)


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return Gated(1, Recognizer.load(tiny_file(tmp_path_factory.mktemp("worker")), device="cpu"), None, None)


@contextmanager
def working() -> Iterator[tuple[Worker, list[int]]]:
    sizes: list[int] = []
    worker = Worker(sizes.append)
    yield worker, sizes
    worker.close()


def taken(now: Snapshot, word: str, start: int, stop: int) -> list[Picture | Unreadable]:
    preprocess = now.enrolled().embedder.preprocess
    named = [as_source(pixels, f"{word} {start + i}") for i, pixels in enumerate(some(word, start, stop))]
    return [take(each, preprocess) for each in named]


@pytest.fixture
def open_gate() -> Callable[[], None]:
    """The first request waits until this is called."""
    Gated.gate.clear()
    return Gated.gate.set


def test_concurrent_requests_share_batches_and_get_their_own_answers(now: Snapshot, open_gate) -> None:
    words = ("zero", "one", "six", "seven")
    asked = [taken(now, words[i % 4], i, i + 1 + i % 3) for i in range(60)]
    with working() as (worker, sizes):
        worker.submit(now, taken(now, "one", 0, 1))
        with ThreadPoolExecutor(8) as clients:
            futures = list(clients.map(lambda photos: worker.submit(now, photos), asked))
        open_gate()
        for photos, future in zip(asked, futures, strict=True):
            results, expected = future.result(PATIENCE), now.predict(photos)
            assert [each.query.picture for each in results] == photos  # type: ignore[union-attr]
            for found, alone in zip(results, expected, strict=True):
                assert isinstance(found, QueryAnswer)
                assert isinstance(alone, QueryAnswer)
                assert found.answer.label == alone.answer.label
                assert found.answer.open_score == pytest.approx(alone.answer.open_score, rel=1e-4, abs=1e-4)
                assert (len(found.query.views), found.query.views.vec.base) == (1, None)
    assert sum(sizes) == sum(map(len, asked)) + 1
    assert 1 < max(sizes) <= 32


def test_unreadable_photos_and_mistakes_stop_nobody_else(now: Snapshot, open_gate) -> None:
    with working() as (worker, _):
        worker.submit(now, taken(now, "one", 0, 1))
        bad = Unreadable("bad", "damaged")
        mixed = worker.submit(now, [bad, *taken(now, "one", 0, 1), bad])
        [photo] = taken(now, "one", 0, 1)
        failing = worker.submit(now, [replace(photo, pixels=photo.pixels[:5]), photo])  # type: ignore[type-var]
        after = worker.submit(now, taken(now, "zero", 0, 1))
        open_gate()
        assert [type(each) for each in mixed.result(PATIENCE)] == [Unreadable, QueryAnswer, Unreadable]
        with pytest.raises(ValueError, match="shape"):
            failing.result(PATIENCE)
        assert isinstance(after.result(PATIENCE)[0], QueryAnswer)
