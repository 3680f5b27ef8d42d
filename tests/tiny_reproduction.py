"""The whole of ``glocal reproduce`` in seconds: the embedded scale on noise, with networks of a few channels."""

from __future__ import annotations

import os
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from apart import PROCESSES
from glocal.research.reproduce.runs import Run
from glocal.research.reproduce.scales import EmbeddedScale
from tiny_runs import make_dataset, run_cli

NAME = "tiny"
CLASSES = {"train": 12, "val": 10, "test": 10}  # 5 known and 5 unknown; base memories need others beside them
LAST_WORD = ("data.holdout=0.5", "data.workers=1", "validation.tasks=3", "validation.query=2")


class TinyScale(EmbeddedScale):
    """RFDNet's and GEL's ResNet-18 is a Conv-4 here: what is tested is the way, not the network."""

    def on_resnet18(self, method: str, dataset: str, shot: int) -> Run:
        run, small = super().on_resnet18(method, dataset, shot), 'backbone={name = "conv4", width = 4, image_size = 32}'
        assert isinstance(run.init, Run)
        return replace(run, init=replace(run.init, overrides=(*run.init.overrides, small)))


def tiny_scale() -> TinyScale:
    """On the data set ``tiny`` below GLOCAL_DATA."""
    pretrain = ("pretrain.epochs=1", "pretrain.batch_size=16", "backbone.image_size=32", "backbone.width=[4, 4, 8, 8]")
    train = ("train.tasks=4", "train.query=3", "train.views=1", "validation.every=2")
    named = f"data.dataset={NAME}"
    return TinyScale(
        "embedded",
        tasks=6,
        beside={NAME: "cifar-fs"},
        pixels={NAME: 4},
        more={"pretrain": (*LAST_WORD, *pretrain, named), "train": (*LAST_WORD, *train, named)},
    )


def make_data(home: Path) -> Path:
    """Returns what GLOCAL_DATA must be."""
    make_dataset(home / NAME, size=32, per_class=20, splits=CLASSES)
    return home


def start(home: Path, *arguments: str, output: Path, cache: Path) -> ForkServerProcess:
    """``glocal reproduce ARGUMENTS`` at the tiny scale, in a process of its own."""
    process = PROCESSES.Process(target=_reproduce, args=(str(home), arguments, str(output), str(cache)))
    process.start()
    return process


def _reproduce(home: str, arguments: tuple[str, ...], output: str, cache: str) -> None:
    from glocal.research.reproduce import scales

    os.environ["GLOCAL_DATA"] = home
    scales.SCALES["embedded"] = tiny_scale()
    run_cli(("reproduce", *arguments), output, cache, 0.02)
