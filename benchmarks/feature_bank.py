"""The feature bank with a full-width ResNet-12 at 32 px, against one plain pass of the backbone over the same images.

    python benchmarks/feature_bank.py [--images 12000]

Goals: the first evaluation of 600 tasks, bank included, takes at most 1.2 times the plain pass; a second one from the
same bank, opened anew, is at least 20 times faster than the first.  The plain pass runs in two halves, one before and
one after the first evaluation, so that other load on the machine meets both alike.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from glocal.research.backbones import Backbone, build_backbone
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.episodes import EpisodeSampler, EpisodeSpec
from glocal.research.engine.checkpoint import Model
from glocal.research.engine.evaluate import Evaluation, build_banks, evaluate_tasks
from glocal.research.methods.protonet import ProtoNet

CLASSES, SIZE, BATCH, TASKS = 20, 32, 128, 600


def plain_pass(backbone: Backbone, images: np.ndarray) -> None:
    """What one would write without glocal."""
    with torch.inference_mode():
        for start in range(0, len(images), BATCH):
            batch = torch.from_numpy(images[start : start + BATCH]).permute(0, 3, 1, 2)
            backbone(backbone.preprocess.normalize(batch).contiguous(memory_format=torch.channels_last))


def evaluation(model: Model, data: ClassDataset, folder: Path) -> Evaluation:
    """Draw the tasks, build or open the bank, run every task."""
    tasks = EpisodeSampler(data, EpisodeSpec(way=5, shot=1), seed=0).take(TASKS)
    return evaluate_tasks(model.method, tasks, build_banks(model.backbone, data, [tasks], folder=folder)[0])


def seconds(run: Callable[[], Evaluation | None]) -> tuple[float, Evaluation | None]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=12_000)
    n = parser.parse_args().images
    torch.manual_seed(0)
    backbone = build_backbone("resnet12", image_size=SIZE).on("cpu").eval()
    model = Model(backbone, ProtoNet(backbone.channels))
    images = np.random.default_rng(0).integers(0, 256, (n, SIZE, SIZE, 3), dtype=np.uint8)
    data = ClassDataset.from_arrays(images, np.arange(n) % CLASSES)
    plain_pass(backbone, images[:BATCH])  # warm-up: the first pass chooses kernels

    with tempfile.TemporaryDirectory() as folder:
        before, _ = seconds(lambda: plain_pass(backbone, images[: n // 2]))
        first, cold = seconds(lambda: evaluation(model, data, Path(folder)))
        after, _ = seconds(lambda: plain_pass(backbone, images[n // 2 :]))
        second, warm = seconds(lambda: evaluation(model, data, Path(folder)))
    plain = before + after
    if any((cold.rows[name] != warm.rows[name]).any() for name in cold.rows):
        raise SystemExit("the two evaluations differ, so their times mean nothing")

    print(f"{n} images, ResNet-12 at {SIZE} px, {TASKS} tasks of 5 ways, {torch.get_num_threads()} threads")
    for title, took, verdict in (
        ("plain pass", plain, ""),
        ("first evaluation, bank included", first, f"{first / plain:6.2f} times the plain pass (goal <= 1.2)"),
        ("second evaluation, bank opened anew", second, f"{first / second:6.1f} times faster (goal >= 20)"),
    ):
        print(f"{title:36} {took:8.2f} s   {verdict}".rstrip())


if __name__ == "__main__":
    main()
