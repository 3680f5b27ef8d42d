"""The bank under real processes: builders that are killed at any moment, and two that start at once."""

from __future__ import annotations

import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from apart import PROCESSES, kill_after
from glocal.research.data.dataset import ClassDataset
from glocal.research.engine.features import FeatureBank
from glocal.research.types import Preprocess

N, BATCH, KILLS = 320, 16, 8


class Logging:
    """A slow backbone that writes down how many images it was given, in a file that outlives it."""

    channels = 6
    preprocess = Preprocess(8)

    def __init__(self, log: Path):
        self.log = log

    def fingerprint(self) -> str:
        return "logging"

    def __call__(self, images: Tensor) -> Tensor:
        with open(self.log, "a") as file:
            file.write(f"{len(images)}\n")
        time.sleep(0.004)
        return torch.cat([images, images * images], 1)


def dataset() -> ClassDataset:
    images = np.random.default_rng(0).integers(0, 256, (N, 8, 8, 3), dtype=np.uint8)
    return ClassDataset.from_arrays(images, np.arange(N) % 4, list("abcd"))


def build(folder: Path, log: Path) -> FeatureBank:
    return FeatureBank.build(Logging(log), dataset(), folder=folder)


def builder(folder: Path, log: Path) -> BaseProcess:
    process = PROCESSES.Process(target=build, args=(folder, log))
    process.start()
    return process


def encoded(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().splitlines()] if log.exists() else []


def content(folder: Path) -> dict[str, bytes]:
    (home,) = folder.iterdir()
    return {path.name: path.read_bytes() for path in home.iterdir() if path.name != "lock"}


def test_killed_builders_leave_a_bank_that_the_next_one_completes(tmp_path: Path) -> None:
    rng = np.random.default_rng()  # other moments on every run
    log = tmp_path / "log"
    killed = 0

    def batches_done() -> int:
        return len(encoded(log)) if list(tmp_path.glob("bank/*/lock")) else -1

    for batches in (1, 0, *rng.integers(0, 4, KILLS - 2)):
        until = len(encoded(log)) + int(batches)
        killed += kill_after(builder(tmp_path / "bank", log), batches_done, until, within=0.006)
    assert killed > 0
    before = sum(encoded(log))

    (lock,) = tmp_path.glob("bank/*/lock")
    with FileLock(lock, timeout=0):  # free: the system took it from the dead
        pass
    bank = build(tmp_path / "bank", log)
    undisturbed = build(tmp_path / "undisturbed", tmp_path / "other log")
    assert sum(encoded(tmp_path / "other log")) == N
    assert torch.equal(bank(np.arange(N)), undisturbed(np.arange(N)))
    assert content(tmp_path / "bank") == content(tmp_path / "undisturbed")
    assert N <= sum(encoded(log)) <= N + killed * BATCH  # a killed builder loses one batch at most
    assert before > 0


def test_two_builders_at_once_share_the_work(tmp_path: Path) -> None:
    log = tmp_path / "log"
    processes = [builder(tmp_path / "bank", log) for _ in range(2)]
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert sum(encoded(log)) == N
    bank = build(tmp_path / "bank", log)
    assert sum(encoded(log)) == N
    assert torch.equal(bank(np.arange(N)), build(tmp_path / "alone", tmp_path / "other log")(np.arange(N)))
