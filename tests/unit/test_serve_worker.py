"""Many requests, one pass through the model: nothing lost, nothing crossed, nothing beyond the bound."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from glocal.recognizer import Recognizer
from glocal.recognizer.photos.sources import Source, Unreadable, as_source
from glocal.serve.problems import Problem
from glocal.serve.server import Worker
from glocal.serve.snapshot import QueryAnswer, Snapshot
from photos import some
from serving import tiny_file
from waiting import PATIENCE, wait_for


@pytest.fixture(scope="module")
def who(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return Snapshot(1, Recognizer.load(tiny_file(tmp_path_factory.mktemp("worker")), device="cpu"), None, None)


@contextmanager
def working(queue: int) -> Iterator[tuple[Worker, list[int]]]:
    sizes: list[int] = []
    worker = Worker(queue=queue, on_batch=sizes.append)
    yield worker, sizes
    worker.close()
    assert worker.pending == 0


def sources(word: str, start: int, stop: int) -> list[Source]:
    return [as_source(pixels, f"{word} {start + i}") for i, pixels in enumerate(some(word, start, stop))]


@pytest.fixture
def gate() -> tuple[Source, Callable[[], None]]:
    """A picture that is decoded when the gate opens, and the function that opens it."""
    opened = threading.Event()
    pixels = some("zero", 30, 31)[0]
    return Source("gate", lambda: opened.wait(PATIENCE) and pixels), opened.set  # type: ignore[return-value]


def test_concurrent_requests_share_batches_and_get_their_own_answers(who: Snapshot, gate) -> None:
    words = ("zero", "one", "six", "seven")
    asked = [sources(words[i % 4], i, i + 1 + i % 3) for i in range(60)]
    with working(1000) as (worker, sizes):
        worker.submit(who, [gate[0]])  # the others meet in the queue
        with ThreadPoolExecutor(8) as clients:
            futures = list(clients.map(lambda some: worker.submit(who, some), asked))
        gate[1]()
        for requested, future in zip(asked, futures, strict=True):
            results, expected = future.result(PATIENCE), list(who.enrolled().stream(requested))
            assert [each.answer.path for each in results] == [each.name for each in requested]  # type: ignore[union-attr]
            for found, alone in zip(results, expected, strict=True):
                assert isinstance(found, QueryAnswer)
                assert found.answer.label == alone.label  # type: ignore[union-attr]
                assert found.answer.open_score == pytest.approx(alone.open_score, rel=1e-4, abs=1e-4)  # type: ignore
                assert (len(found.query.views), found.query.views.vec.base) == (1, None)
    assert sum(sizes) == sum(map(len, asked)) + 1
    assert 1 < max(sizes) <= 32


def test_a_cancelled_request_is_not_computed(who: Snapshot, gate) -> None:
    decoded = []
    with working(10) as (worker, sizes):
        first = worker.submit(who, [gate[0]])
        wait_for(first.running)
        cancelled = worker.submit(who, [Source("late", lambda: decoded.append("late"))] * 5)  # type: ignore
        assert cancelled.cancel()
        gate[1]()
        after = worker.submit(who, sources("one", 0, 1))
        assert len(after.result(PATIENCE)) == 1
    assert (decoded, sum(sizes)) == ([], 2)


def test_closing_finishes_what_was_accepted(who: Snapshot, gate) -> None:
    with working(100) as (worker, _):
        futures = [worker.submit(who, [gate[0], *sources("one", i, i + 1)]) for i in range(5)]
        closing = threading.Thread(target=worker.close)
        closing.start()
        gate[1]()
        assert [len(each.result(PATIENCE)) for each in futures] == [2] * 5
        closing.join(PATIENCE)
        assert not closing.is_alive()
        with pytest.raises(Problem):
            worker.submit(who, sources("one", 0, 1))


def test_bad_pictures_and_mistakes_stop_nobody_else(who: Snapshot, gate) -> None:
    def broken():
        raise ZeroDivisionError("a mistake in a reader")

    with working(100) as (worker, _):
        worker.submit(who, [gate[0]])
        mixed = worker.submit(who, [as_source(b"no picture", "bad"), *sources("one", 0, 1), as_source(b"", "empty")])
        failing = worker.submit(who, [Source("broken", broken), *sources("one", 0, 1)])
        after = worker.submit(who, sources("zero", 0, 1))
        gate[1]()
        bad, good, empty = mixed.result(PATIENCE)
        assert isinstance(bad, Unreadable)
        assert isinstance(good, QueryAnswer)
        assert (empty.path, "empty" in empty.error) == ("empty", True)  # type: ignore[union-attr]
        with pytest.raises(ZeroDivisionError):
            failing.result(PATIENCE)
        assert isinstance(after.result(PATIENCE)[0], QueryAnswer)


def test_each_request_is_answered_by_the_version_it_came_with(who: Snapshot, gate) -> None:
    renamed = copy.copy(who.enrolled())
    renamed.rename_class("one", "uno")
    other = Snapshot(2, renamed, None, None)
    with working(100) as (worker, _):
        worker.submit(who, [gate[0]])
        futures = [worker.submit(each, sources("one", 0, 1)) for each in (who, other, who, other)]
        gate[1]()
        nearest = [each.result(PATIENCE)[0].answer.nearest for each in futures]  # type: ignore[union-attr]
    assert nearest == ["one", "uno", "one", "uno"]


def test_what_nobody_waits_for_is_not_decoded(who: Snapshot, gate) -> None:
    """Also when its turn has come: those of a batch that are not decoded yet are left."""
    decoded: list[int] = []

    def read(i: int) -> object:
        decoded.append(i)
        return gate[0].read()

    late = [Source(str(i), lambda i=i: read(i)) for i in range(40)]  # type: ignore[misc]

    async def ask(worker: Worker) -> None:
        async with asyncio.timeout(PATIENCE):
            asked = asyncio.ensure_future(worker.predict(who, late, PATIENCE))
            while not decoded:
                await asyncio.sleep(0.01)
            asked.cancel()  # as when the client hangs up
            with pytest.raises(asyncio.CancelledError):
                await asked

    with working(100) as (worker, _):
        asyncio.run(ask(worker))
        gate[1]()
        assert worker.submit(who, sources("one", 0, 1)).result(PATIENCE)
    assert 0 < len(decoded) < 40


def test_what_takes_too_long_is_told_to_come_again(who: Snapshot, gate) -> None:
    async def ask(worker: Worker) -> None:
        with pytest.raises(Problem, match="429"):
            await worker.predict(who, [gate[0]], 0.05)

    with working(100) as (worker, _):
        asyncio.run(ask(worker))
        gate[1]()


def test_pixels_that_wait_are_bounded(who: Snapshot, gate) -> None:
    with working(100) as (worker, _):
        large = Source("large", gate[0].read, pixels=600_000_000)
        first = worker.submit(who, [large])
        with pytest.raises(Problem, match="429"):
            worker.submit(who, [large])
        small = worker.submit(who, [Source("small", gate[0].read, pixels=100)])
        gate[1]()
        assert first.result(PATIENCE)
        assert small.result(PATIENCE)
        assert worker.submit(who, [large]).result(PATIENCE)
