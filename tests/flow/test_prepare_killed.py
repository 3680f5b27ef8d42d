"""Preparing under real processes that are killed at any moment: nothing under the target's name until all of it is."""

from __future__ import annotations

import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from apart import PROCESSES, kill_after
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.prepare import prepare, work_folder
from glocal.research.data.prepared import open_prepared
from packings import by_split, zipped

PER_CLASS, KILLS = 8, 6
CLASSES = {"train": "abc", "val": "def", "test": "ghi"}
PER_SPLIT = 3 * PER_CLASS


def pictures(name: str) -> np.ndarray:
    return np.random.default_rng(ord(name)).integers(0, 256, (PER_CLASS, 16, 16, 3), dtype=np.uint8)


def run(target: Path, source: Path, log: Path) -> None:
    """Slowly, writing down what is read in a file that outlives the reader."""

    def report(split: str, done: int, *, total: int) -> None:
        with open(log, "a") as file:
            file.write(f"{split}\n")
        time.sleep(0.0005)

    prepare(target, "toy", source, progress=report)


def preparer(target: Path, source: Path, log: Path) -> BaseProcess:
    process = PROCESSES.Process(target=run, args=(target, source, log))
    process.start()
    return process


def read(log: Path) -> Counter[str]:
    return Counter(log.read_text().splitlines() if log.exists() else [])


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_killed_preparers_leave_a_folder_that_the_next_one_completes(tmp_path: Path) -> None:
    rng = np.random.default_rng()  # other moments on every run
    data = {split: {name: pictures(name) for name in names} for split, names in CLASSES.items()}
    (tmp_path / "in").mkdir()
    source = zipped(by_split(tmp_path / "in" / "toy", data))
    home = tmp_path / "home"
    home.mkdir()
    target, log, killed = home / "toy", tmp_path / "log", 0
    for kill in range(KILLS):
        until = read(log).total() + int(rng.integers(0, 2 * PER_SPLIT)) if kill else 5
        killed += kill_after(preparer(target, source, log), lambda: read(log).total(), until, within=0.01)
        if target.exists():
            break
        assert [path.name for path in home.iterdir()] == [work_folder(target).name]
    assert killed > 0
    if not target.exists():
        run(target, source, log)

    undisturbed = tmp_path / "undisturbed"
    run(undisturbed, source, tmp_path / "other log")
    assert read(tmp_path / "other log") == dict.fromkeys(CLASSES, PER_SPLIT)
    assert content(target) == content(undisturbed)
    again = read(log) - Counter(dict.fromkeys(CLASSES, PER_SPLIT))
    # A killed preparer loses one split at most; a finished one costs the next preparer one report.
    assert again.total() <= killed * (PER_SPLIT + len(CLASSES))
    for split, names in CLASSES.items():
        labels = [name for name in names for _ in range(PER_CLASS)]
        images = np.concatenate([pictures(name) for name in names])
        assert open_prepared(target, split).manifest == ClassDataset.from_arrays(images, labels).manifest
