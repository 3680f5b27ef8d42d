"""Preparing under real processes that are killed at any moment: nothing under the target's name until all of it is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from apart import PROCESSES, kill_after
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.prepare import prepare, work_folder
from glocal.research.data.prepared import open_prepared
from glocal.research.data.prepared_writer import Sample

PER_SPLIT, KILLS = 24, 6
CLASSES = {"train": "abc", "val": "de", "test": "fgh"}


def pictures(split: str) -> np.ndarray:
    return np.random.default_rng(len(split)).integers(0, 256, (PER_SPLIT, 16, 16, 3), dtype=np.uint8)


def samples(split: str, log: Path) -> Iterator[Sample]:
    """Slowly, writing down what is read in a file that outlives the reader."""
    for i, picture in enumerate(pictures(split)):
        with open(log, "a") as file:
            file.write(f"{split}\n")
        time.sleep(0.0005)
        yield Sample(CLASSES[split][i % len(CLASSES[split])], picture, f"{split}[{i}]")


def run(target: Path, log: Path) -> None:
    splits = {split: (lambda split=split: samples(split, log)) for split in CLASSES}
    prepare(target, splits, name="toy", packing="arrays", key="the input")


def preparer(target: Path, log: Path) -> BaseProcess:
    process = PROCESSES.Process(target=run, args=(target, log))
    process.start()
    return process


def read(log: Path) -> Counter[str]:
    return Counter(log.read_text().splitlines() if log.exists() else [])


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_killed_preparers_leave_a_folder_that_the_next_one_completes(tmp_path: Path) -> None:
    rng = np.random.default_rng()  # other moments on every run
    target, log, killed = tmp_path / "toy", tmp_path / "log", 0
    for kill in range(KILLS):
        until = read(log).total() + int(rng.integers(0, 2 * PER_SPLIT)) if kill else 5
        killed += kill_after(preparer(target, log), lambda: read(log).total(), until, within=0.01)
        if target.exists():
            break
        assert [path.name for path in tmp_path.iterdir() if path.name != "log"] == [work_folder(target).name]
    assert killed > 0
    if not target.exists():
        run(target, log)

    undisturbed = tmp_path / "undisturbed"
    run(undisturbed, tmp_path / "other log")
    assert read(tmp_path / "other log") == dict.fromkeys(CLASSES, PER_SPLIT)
    assert content(target) == content(undisturbed)
    again = read(log) - Counter(dict.fromkeys(CLASSES, PER_SPLIT))
    assert again.total() <= killed * PER_SPLIT  # a killed preparer loses one split at most, and no finished one
    for split, names in CLASSES.items():
        labels = [names[i % len(names)] for i in range(PER_SPLIT)]
        assert open_prepared(target, split).manifest == ClassDataset.from_arrays(pictures(split), labels).manifest
