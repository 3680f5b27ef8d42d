"""Any number of pictures in bounded memory."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from glocal_runtime.encoder import AHEAD, BATCH, Encoder
from glocal_runtime.photos import Source, picture_files
from photos import recognizer, some
from refusal import refused


def test_the_input_is_read_only_a_few_batches_ahead() -> None:
    asked = decoded = largest = 0
    lock = threading.Lock()
    [pixels] = some("one", 0, 1)

    def read() -> np.ndarray:
        nonlocal decoded
        with lock:
            decoded += 1
        return pixels

    def endless():
        nonlocal asked
        while True:
            asked += 1
            yield Source(f"{asked}", read)

    answers = recognizer().stream(endless())
    for n in range(1, 20 * BATCH):
        assert next(answers).path == str(n)
        largest = max(largest, asked - n, decoded - n)
    answers.close()
    assert largest <= (AHEAD + 1) * BATCH
    assert decoded <= asked


def test_memory_holds_fitted_pictures_and_not_large_ones() -> None:
    """What waits for its turn is as small as the backbone wants it, whatever came in."""
    sizes: list[int] = []
    batch = Encoder.batch

    def spy(self, pictures):
        taken = list(pictures)
        sizes.extend(each.pixels.nbytes for each in taken)
        return batch(self, taken)

    large = np.zeros((600, 800, 3), np.uint8)
    who = recognizer()
    try:
        Encoder.batch = spy
        assert sum(1 for _ in who.stream(large for _ in range(2 * BATCH))) == 2 * BATCH
    finally:
        Encoder.batch = batch
    assert set(sizes) == {32 * 32 * 3}


def test_batches_are_fixed_stretches_of_the_input() -> None:
    pictures = some("one", 0, 50) + some("two", 0, 20)
    sizes = [len(found.answers) for found in recognizer().batches(pictures)]
    assert sizes == [32, 32, 6]


def test_the_caller_may_stop() -> None:
    stream = recognizer().stream(some("one", 0, 100))
    next(stream)
    stream.close()
    assert not [each for each in threading.enumerate() if "ThreadPool" in each.name and not each.daemon]


def test_files_below_folders_come_in_order_and_lazy(tmp_path: Path) -> None:
    for name in ("b/2.png", "b/1.JPG", "a/x.jpeg", "c.png", "note.txt", ".hidden/1.png", "a/.2.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [path.relative_to(tmp_path).as_posix() for path in picture_files([tmp_path])]
    assert found == ["a/x.jpeg", "b/1.JPG", "b/2.png", "c.png"]
    lone = picture_files([tmp_path / "note.txt", tmp_path / "no such folder"])
    assert [path.name for path in lone] == ["note.txt", "no such folder"]  # named by hand: told of when opened
    (tmp_path / "empty").mkdir()
    steps = picture_files([tmp_path / "c.png", tmp_path / "empty"])
    assert next(steps).name == "c.png"
    with refused("data", "no picture in this folder"):
        next(steps)
