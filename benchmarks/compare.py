"""``glocal compare`` of every method from maps of the CIFAR-FS size: methods x tasks per second, memory, in one run.

    python benchmarks/compare.py [TASKS]

Maps (2 x 2 pixels, 192 channels) are drawn at random around a centre per class, 20 test classes of 600 pictures;
tasks are 5-way with 75 known and 75 unknown queries.  Every method reads off its own open score.  Memory is the growth
of the process from a short list of tasks to one ten times as long.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence

import numpy as np
import torch

from glocal.research.backbones import build_backbone
from glocal.research.data import EpisodeSampler, EpisodeSpec, FeatureBank, TaskList
from glocal.research.data.dataset import ClassDataset
from glocal.research.engine.checkpoint import Model
from glocal.research.engine.evaluate import run_tasks
from glocal.research.engine.named_models import NamedModel, name_model
from glocal.research.methods import METHODS
from glocal.research.types import BaseClasses

CHANNELS, SIDE, CLASSES, PICTURES, BASE = 192, 2, 20, 600, 64
GOAL = 60  # methods x tasks per second on 2 cores


def pictures() -> ClassDataset:
    """Something to draw tasks from: the smallest pictures there are, told apart by one pixel."""
    n = CLASSES * PICTURES
    images = np.zeros((n, 8, 8, 3), np.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = np.arange(n) % 256, np.arange(n) // 256
    return ClassDataset.from_arrays(images, [f"class {i // PICTURES}" for i in range(n)])


def bank(data: ClassDataset) -> FeatureBank:
    rng = np.random.default_rng(0)
    centre = rng.normal(size=(CLASSES, CHANNELS, 1, 1))[data.label]
    maps = np.maximum(centre + rng.normal(size=(len(data), CHANNELS, SIDE, SIDE)), 0).astype(np.float32)
    return FeatureBank(maps, np.arange(len(data)))


def everybody() -> list[NamedModel]:
    torch.manual_seed(0)
    backbone = build_backbone("resnet12", width=(24, 48, 96, CHANNELS), image_size=32)
    rows, label = torch.randn(BASE, CHANNELS).relu(), torch.arange(BASE).repeat_interleave(60)
    vec = rows[label] + torch.randn(len(label), CHANNELS).relu()
    base = BaseClasses(tuple(f"base {i}" for i in range(BASE)), rows, rows, rows.mean(dim=0), vec, label)
    found = []
    for name, build in METHODS.items():
        method = build(CHANNELS)
        if method.needs_base:
            method.set_base(base)
        found.append(name_model(name, Model(backbone, method, {"method": {"name": name, "settings": {}}})))
    return found


def seconds(models: Sequence[NamedModel], tasks: TaskList, maps: FeatureBank) -> float:
    scores = {each.name: (each.model.method, each.score) for each in models}
    start = time.perf_counter()
    run_tasks(scores, tasks, maps)
    return time.perf_counter() - start


def main(count: int) -> None:
    data = pictures()
    maps, models = bank(data), everybody()
    print(f"{len(models)} methods, {count} tasks, {torch.get_num_threads()} threads")
    for shot in (1, 5):
        sampler = EpisodeSampler(data, EpisodeSpec(shot=shot))
        short = sampler.take(max(2, count // 10), keep=False)
        seconds(models, short, maps)  # warm
        print(f"5-way {shot}-shot")
        for each in models:
            print(f"  {each.name:16}{len(short) / seconds([each], short, maps):9.0f} tasks/s")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        speed = len(models) * count / seconds(models, sampler.take(count, keep=False), maps)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"  all together: {speed:.0f} methods x tasks per second (goal {GOAL}), {grown:.1f} MB more memory")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
