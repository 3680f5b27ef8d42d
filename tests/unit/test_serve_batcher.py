"""Many requests, one backbone pass: nothing lost, nothing crossed, nothing beyond the bound."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from glocal.recognizer import Recognizer, Unreadable
from glocal.recognizer.eye import Source, as_source
from glocal.serve.worker import Worker
from photos import some
from serving import tiny_file


@pytest.fixture(scope="module")
def who(tmp_path_factory: pytest.TempPathFactory) -> Recognizer:
    return Recognizer.load(tiny_file(tmp_path_factory.mktemp("batcher")), device="cpu")


def sources(word: str, start: int, stop: int) -> list[Source]:
    return [as_source(pixels, f"{word} {start + i}") for i, pixels in enumerate(some(word, start, stop))]


class Gate:
    """A picture that is decoded when the gate opens."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.pixels = some("zero", 30, 31)[0]

    def read(self):
        self.open.wait(30)
        return self.pixels


def test_concurrent_requests_share_batches_and_get_their_own_answers(who: Recognizer) -> None:
    batcher = Batcher(queue=1000, batch=16, workers=2)
    words = ("zero", "one", "six", "seven")
    asked = [sources(words[i % 4], i, i + 1 + i % 3) for i in range(60)]
    gate = Gate()
    batcher.submit(who, [Source("gate", gate.read)] * 2)  # both threads wait, so that the others meet in the queue
    with ThreadPoolExecutor(8) as clients:
        futures = list(clients.map(lambda some: batcher.submit(who, some), asked))
    gate.open.set()
    for requested, future in zip(asked, futures, strict=True):
        results, expected = future.result(60), list(who.stream(requested))
        assert [each.answer.path for each in results if isinstance(each, Seen)] == [each.name for each in requested]
        for found, alone in zip(results, expected, strict=True):
            assert isinstance(found, Seen)
            assert found.answer.label == alone.label  # type: ignore[union-attr]
            assert found.answer.open_score == pytest.approx(alone.open_score, rel=1e-4, abs=1e-4)  # type: ignore
            assert len(found.views) == 1
    batcher.close()
    assert batcher.pending == 0
    assert sum(size * n for size, n in batcher.sizes.items()) == sum(map(len, asked)) + 2
    assert max(batcher.sizes) > 1
    assert max(batcher.sizes) <= 16


def test_a_full_queue_refuses_the_whole_request(who: Recognizer) -> None:
    batcher = Batcher(queue=3, batch=4, workers=1)
    gate = Gate()
    first = batcher.submit(who, [Source("gate", gate.read)] * 2)
    with pytest.raises(Full) as full:
        batcher.submit(who, sources("one", 0, 2))
    assert full.value.seconds >= 1
    second = batcher.submit(who, sources("one", 0, 1))
    assert batcher.pending == 3
    gate.open.set()
    assert len(first.result(30)) == 2
    assert len(second.result(30)) == 1
    assert len(batcher.submit(who, sources("one", 0, 3)).result(30)) == 3
    batcher.close()


def test_closing_finishes_what_was_accepted(who: Recognizer) -> None:
    batcher = Batcher(queue=100, batch=4, workers=1)
    gate = Gate()
    futures = [batcher.submit(who, [Source("gate", gate.read), *sources("one", i, i + 1)]) for i in range(5)]
    closing = threading.Thread(target=batcher.close)
    closing.start()
    gate.open.set()
    wait(futures, timeout=30)
    assert [len(each.result(0)) for each in futures] == [2] * 5
    closing.join(30)
    assert not closing.is_alive()
    with pytest.raises(Full):
        batcher.submit(who, sources("one", 0, 1))


def test_bad_pictures_and_mistakes_stop_nobody_else(who: Recognizer) -> None:
    batcher = Batcher(queue=100, batch=8, workers=1)

    def broken():
        raise ZeroDivisionError("a mistake in a reader")

    mixed = batcher.submit(who, [as_source(b"no picture", "bad"), *sources("one", 0, 1), as_source(b"", "empty")])
    failing: Future = batcher.submit(who, [Source("broken", broken), *sources("one", 0, 1)])
    blind = copy.copy(who)
    blind._judge = None  # type: ignore[assignment]
    unjudged: Future = batcher.submit(blind, sources("one", 0, 1))
    after = batcher.submit(who, sources("zero", 0, 1))
    bad, good, empty = mixed.result(30)
    assert isinstance(bad, Unreadable)
    assert isinstance(good, Seen)
    assert (empty.path, "empty" in empty.error) == ("empty", True)  # type: ignore[union-attr]
    with pytest.raises(ZeroDivisionError):
        failing.result(30)
    with pytest.raises(AttributeError):
        unjudged.result(30)
    assert isinstance(after.result(30)[0], Seen)
    batcher.close()
    assert batcher.pending == 0


def test_each_request_is_judged_by_the_recognizer_it_came_with(who: Recognizer, tmp_path: Path) -> None:
    batcher = Batcher(queue=100, batch=8, workers=1)
    other = copy.copy(who)
    other.rename_class("one", "uno")
    gate = Gate()
    batcher.submit(who, [Source("gate", gate.read)])
    futures = [batcher.submit(each, sources("one", 0, 1)) for each in (who, other, who, other)]
    gate.open.set()
    assert [each.result(30)[0].answer.nearest for each in futures] == ["one", "uno", "one", "uno"]  # type: ignore
    batcher.close()
