"""Runs that take a second: small pictures, narrow networks, and the command line in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from apart import PROCESSES, glocal
from waiting import PATIENCE, wait_for

SETTLED = (1_000_000_000, 1_000_000_000)  # a file this old may be remembered by the digest cache
SPLITS = {"train": 5, "val": 4, "test": 4}  # classes


def make_dataset(root: Path, *, size: int = 16, per_class: int = 8, splits: Mapping[str, int] = SPLITS) -> Path:
    """``root/<split>/<class>/*.png``: noise around a colour per class, so that there is something to learn."""
    rng = np.random.default_rng(0)
    for split, classes in splits.items():
        for c in range(classes):
            folder = root / split / f"{split}{c}"
            folder.mkdir(parents=True)
            colour = rng.integers(60, 196, 3)
            for i in range(per_class):
                noisy = np.clip(colour + rng.normal(0, 40, (size, size, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(noisy).save(folder / f"{i}.png")
                os.utime(folder / f"{i}.png", SETTLED)
    return root


def fields(dataset: Path, stage: str, **sections: Any) -> dict[str, Any]:
    """A recipe as nested dicts; ``sections`` are merged in, a value of None takes a key out."""
    task = {"way": 2, "shot": 1, "query": 3, "unknown_way": 2}
    recipe: dict[str, Any] = {
        "stage": stage,
        "data": {"dataset": str(dataset), "workers": 1},
        "backbone": {"name": "resnet12", "width": [4, 4, 8, 8], "image_size": 16, "dropblock_steps": 10},
        "method": {"name": "protonet"},
        "optimizer": {"lr": 0.05},
        "pretrain": {"epochs": 3, "batch_size": 8},
        "train": {"tasks": 15, **task},
        "validation": {"every": 4, "tasks": 4, **task},
    }
    for name, section in sections.items():
        recipe[name] = recipe.get(name, {}) | section if isinstance(section, dict) else section
    return {name: value for name, value in recipe.items() if value is not None}


def start_cli(*arguments: str, output: Path, cache: Path, save_seconds: float = 0.02) -> ForkServerProcess:
    """``glocal ARGUMENTS`` in a new process; what it says goes to ``output``."""
    process = PROCESSES.Process(target=run_cli, args=(arguments, str(output), str(cache), save_seconds))
    process.start()
    return process


def run_cli(arguments: tuple[str, ...], output: str, cache: str, save_seconds: float) -> None:
    from glocal.research.engine import loop

    loop.SAVE_SECONDS, loop.LOG_EVERY = save_seconds, 1
    glocal(arguments, output, output, GLOCAL_CACHE=cache)


def run_alone(command: Sequence[str], out: Path, *, cache: Path) -> Path:
    """A run of ``glocal COMMAND --out OUT`` that nobody disturbs."""
    log = out.with_suffix(".log")
    process = start_cli(*command, "--out", str(out), "--device", "cpu", output=log, cache=cache)
    process.join(PATIENCE)
    assert process.exitcode == 0, log.read_text()
    return out


def wait_for_lines(metrics: Path, n: int) -> None:
    wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= n, every=0.002)
