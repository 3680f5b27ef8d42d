"""The prepared form at 84 px (memory-mapped array): against decoding JPEG, and against what training consumes.

    python benchmarks/prepared.py [--images 4000] [--steps 4]

Reading: one picture of the prepared form against the same one from JPEG, both through ClassDataset.image in one random
order.  Training: pictures per second that loading and augmenting deliver, against those that a step of the full-width
ResNet-12 takes (forward, backward, update).  Preprocessing and augmentation are those of mini-imagenet-pretrain, but
without turning each picture into four, which would let the network rest four times as long.  Loader and step run in
turns on the same cores, each with all of them, so that other load on the machine meets both alike.  Files are warm in
the page cache: what is compared is work, not the disk.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from glocal.research.backbones import build_backbone
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.loader import ImageLoader
from glocal.research.data.prepare import prepare
from glocal.research.data.prepared import open_prepared
from glocal.research.engine.recipe import load_recipe
from glocal.research.ops.similarity import pool
from glocal.research.types import normalize

SIZE, CLASSES, TURN, ROUNDS, BATCH = 84, 20, 250, 3, 16
GOAL = 10  # times faster
NEEDED = 2  # times what training takes: then the loader is idle at least half of the time


def write_jpegs(folder: Path, images: int) -> None:
    """Smooth random pictures, about as hard to code as photographs."""
    rng = np.random.default_rng(0)
    for i in range(images):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8))
        path = folder / f"class {i % CLASSES}" / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((SIZE, SIZE), Image.Resampling.BICUBIC).save(path, quality=90)


def seconds(data: ClassDataset, indices: np.ndarray) -> float:
    start = time.perf_counter()
    for i in indices:
        data.image(i)
    return time.perf_counter() - start


class Training:
    """Loading and stepping as pre-training does it, with a clock on each."""

    def __init__(self, data: ClassDataset):
        recipe = load_recipe("mini-imagenet-pretrain", ['augment.rotate="none"'])
        self.data, self.augment = data, recipe.augment.build()
        self.backbone = build_backbone(recipe.backbone.name, recipe.backbone.settings).train()
        self.backbone.to(memory_format=torch.channels_last)
        self.classifier = nn.Linear(self.backbone.channels, len(data.classes))
        weights = [*self.backbone.parameters(), *self.classifier.parameters()]
        self.optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
        self.loader = ImageLoader(data, self.backbone.preprocess)
        self.generator = torch.Generator().manual_seed(0)

    def load(self, rows: np.ndarray) -> tuple[Tensor, float]:
        start = time.perf_counter()
        images = self.augment(self.loader(rows), self.generator)
        return images, time.perf_counter() - start

    def step(self, images: Tensor, labels: Tensor) -> float:
        start = time.perf_counter()
        ready = normalize(images, self.backbone.preprocess).contiguous(memory_format=torch.channels_last)
        F.cross_entropy(self.classifier(pool(self.backbone(ready))), labels).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - start


def against_training(data: ClassDataset, steps: int) -> None:
    training, rng = Training(data), np.random.default_rng(2)
    loading, stepping = [], []
    for _ in range(steps + 1):
        large = rng.choice(len(data), 16 * BATCH, replace=False)  # several batches: one would be over too soon to time
        images, seconds = training.load(large)
        loading.append(len(large) / seconds)
        labels = torch.from_numpy(data.label[large[:BATCH]])
        stepping.append(BATCH / training.step(images[:BATCH], labels))
    delivered, taken = np.median(loading[1:]), np.median(stepping[1:])  # the first of each warms up
    ratio = delivered / taken
    threads = torch.get_num_threads()
    print(
        f"training on {threads} threads: the loader delivers {delivered:.0f} pictures per s, a step takes {taken:.1f}"
    )
    print(f"ratio {ratio:.0f} (goal at least {NEEDED}): {'reached' if ratio >= NEEDED else 'missed'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()
    images = arguments.images
    with tempfile.TemporaryDirectory() as home:
        files, folder = Path(home, "files"), Path(home, "prepared")
        write_jpegs(files, images)
        begin = time.perf_counter()
        prepare(folder, "jpegs", files, shares=(1, 0, 0))
        preparing = time.perf_counter() - begin
        jpeg = ClassDataset.from_folder(files)
        begin = time.perf_counter()
        prepared = open_prepared(folder, "train")
        opening = time.perf_counter() - begin
        if prepared.manifest != jpeg.manifest:
            raise SystemExit("the two forms are not the same data set")
        spent = {"jpeg": 0.0, "prepared": 0.0}
        rng = np.random.default_rng(1)
        for _ in range(ROUNDS):
            order = rng.permutation(images)
            for turn in np.split(order, range(TURN, images, TURN)):
                spent["jpeg"] += seconds(jpeg, turn)
                spent["prepared"] += seconds(prepared, turn)
        report(spent, images, preparing, opening)
        against_training(prepared, arguments.steps)


def report(spent: dict[str, float], images: int, preparing: float, opening: float) -> None:
    per_image = {form: 1e6 * total / (ROUNDS * images) for form, total in spent.items()}
    ratio = per_image["jpeg"] / per_image["prepared"]
    print(f"preparing {1e6 * preparing / images:.0f} µs per picture, opening {1e3 * opening:.1f} ms")
    print(f"reading: JPEG {per_image['jpeg']:.0f} µs, prepared {per_image['prepared']:.1f} µs per picture")
    print(f"ratio {ratio:.0f} (goal at least {GOAL}): {'reached' if ratio >= GOAL else 'missed'}")


if __name__ == "__main__":
    main()
