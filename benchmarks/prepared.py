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
from torch import nn

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


def against_training(data: ClassDataset, steps: int) -> None:
    recipe = load_recipe("mini-imagenet-pretrain", ['augment.rotate="none"'])
    augment, generator, rng = recipe.augment, torch.Generator().manual_seed(0), np.random.default_rng(2)
    backbone = build_backbone(recipe.backbone.name, recipe.backbone.settings).train()
    backbone.to(memory_format=torch.channels_last)
    classifier, loader = nn.Linear(backbone.channels, len(data.classes)), ImageLoader(data, backbone.preprocess)
    optimizer = torch.optim.SGD([*backbone.parameters(), *classifier.parameters()], lr=0.1, momentum=0.9)
    loading, stepping = [], []
    for _ in range(steps + 1):
        rows = rng.choice(len(data), 16 * BATCH, replace=False)  # several batches: one would be over too soon to time
        times = [time.perf_counter()]
        images = augment(loader(rows), generator)
        times.append(time.perf_counter())
        ready = normalize(images[:BATCH], backbone.preprocess).contiguous(memory_format=torch.channels_last)
        F.cross_entropy(classifier(pool(backbone(ready))), torch.from_numpy(data.label[rows[:BATCH]])).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loading.append(len(rows) / (times[1] - times[0]))
        stepping.append(BATCH / (time.perf_counter() - times[1]))
    delivered, taken = np.median(loading[1:]), np.median(stepping[1:])  # the first of each warms up
    print(f"{torch.get_num_threads()} threads: loaded {delivered:.0f} pictures per s, a step takes {taken:.1f}", end="")
    print(f", ratio {delivered / taken:.0f} (goal at least {NEEDED})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()
    images = arguments.images
    with tempfile.TemporaryDirectory() as home:
        files, folder = Path(home, "files"), Path(home, "prepared")
        write_jpegs(files, images)
        prepare(folder, "jpegs", files, shares=(1, 0, 0))
        jpeg, begin = ClassDataset.from_folder(files), time.perf_counter()
        prepared = open_prepared(folder, "train")
        print(f"opening {1e3 * (time.perf_counter() - begin):.1f} ms")
        if prepared.manifest != jpeg.manifest:
            raise SystemExit("the two forms are not the same data set")
        spent, rng = np.zeros(2), np.random.default_rng(1)
        for _ in range(ROUNDS):
            for turn in np.split(rng.permutation(images), range(TURN, images, TURN)):
                spent += [seconds(form, turn) for form in (jpeg, prepared)]
        slow, fast = 1e6 * spent / (ROUNDS * images)
        print(f"JPEG {slow:.0f} µs, prepared {fast:.1f} µs per picture, ratio {slow / fast:.0f} (goal at least {GOAL})")
        against_training(prepared, arguments.steps)


if __name__ == "__main__":
    main()
