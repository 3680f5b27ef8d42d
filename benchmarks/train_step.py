"""One training step of GEL: the paper's pseudo-code written out plainly against glocal's own loop, in one run.

    python benchmarks/train_step.py

Full-width ResNet-12, 5-way 5-shot, variant ahead, SGD update included; 32 px with 15 queries per class, 84 px with 5.
Plain: two backbone passes, support of all 10 classes encoded, Algorithm 1 (tests/reference/step.py).  Both sides have
the same network, weights, pictures and optimizer; tests/flow/test_step_equivalence.py shows that they compute the same.
Each runs in a process of its own; extra memory is its peak above what it held with model and data ready (Linux, /proc).
Time is that of the fastest step, on the clock and summed over the processors (which other load disturbs less).
Goals: at least 2 times faster, at most 0.55 times the extra memory.
"memory kept" is glocal with a glibc that does not return freed memory to the system, by two environment variables.  On
a quiet machine it was as fast at 32 px and 1.2 times as fast at 84 px, for 1.3 and 1.6 times the memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from glocal.research.data.episodes import EpisodeSampler
from glocal.research.engine import loop
from glocal.research.engine.distributed import StepLosses
from glocal.research.engine.recipe import Recipe, parse_recipe
from glocal.research.engine.train import TrainStage

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from reference.step import naive_losses

KEEP = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**32 - 1)}
SIDES: dict[str, dict[str, str]] = {"pseudo-code": {}, "glocal": {}, "memory kept": KEEP}  # with their environment
CASES = {32: (15, 3), 84: (5, 2)}  # size: queries per class, steps taken; the fastest step counts
WAY, SHOT = 5, 5


def write_pictures(folder: Path, size: int, per_class: int) -> None:
    rng = np.random.default_rng(0)
    (folder / "val").mkdir(parents=True)  # never opened; with it, train is a split and not a class
    for c in range(2 * WAY):
        (folder / "train" / f"class{c}").mkdir(parents=True)
        for i in range(per_class):
            noise = rng.integers(0, 256, (size, size, 3), dtype=np.uint8)
            Image.fromarray(noise).save(folder / "train" / f"class{c}" / f"{i}.png")


def recipe_of(folder: Path, size: int) -> Recipe:
    return parse_recipe(
        {
            "stage": "train",
            "data": {"dataset": str(folder)},
            "backbone": {"name": "resnet12", "image_size": size},
            "method": {"name": "gel", "variant": "ahead"},
            "optimizer": {"lr": 1e-3, "lr_backbone": 1e-4},
            "train": {"way": WAY, "shot": SHOT, "query": CASES[size][0], "unknown_way": WAY},
        }
    )


class PseudoCode(nn.Module):
    """The losses of a step, with the network in PyTorch's default memory layout."""

    def __init__(self, stage: TrainStage):
        super().__init__()
        self.stage, self.parts = stage, nn.ModuleDict(stage.modules).to(memory_format=torch.contiguous_format)
        self.sampler = EpisodeSampler(stage.data, stage.recipe.train.spec, mirror=True)

    def forward(self, step: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(step)
        task = self.sampler[step].episode(lambda rows: self.stage._images(rows, generator).contiguous())
        return naive_losses(self.stage.model.backbone, self.stage.model.method, task)


def memory(field: str) -> float:
    """MiB: VmRSS is what the process holds now, VmHWM the most it ever held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field))) / 1024


def measure(side: str, size: int, folder: Path) -> dict[str, float]:
    recipe = recipe_of(folder, size)
    stage = TrainStage(recipe, torch.device("cpu"))
    optimizer, _ = loop._optimizer(stage, recipe)
    losses = PseudoCode(stage) if side == "pseudo-code" else StepLosses(stage)
    held, seconds, busy = memory("VmRSS"), [], []
    for step in range(CASES[size][1]):
        start, start_busy = time.perf_counter(), time.process_time()
        loop._step(losses, recipe, optimizer, step, folder)
        seconds.append(time.perf_counter() - start)
        busy.append(time.process_time() - start_busy)
    return {"seconds": min(seconds), "busy": min(busy), "extra": memory("VmHWM") - held}


def main() -> None:
    print(f"ResNet-12, {WAY}-way {SHOT}-shot, threads: {torch.get_num_threads()}, load: {os.getloadavg()[0]:.1f}")
    print("goals of glocal: at least 2x faster, at most 0.55x the memory")
    for size, (query, _) in CASES.items():
        print(f"{size} px, {query} queries per class", flush=True)
        found: dict[str, dict[str, float]] = {}
        with tempfile.TemporaryDirectory() as folder:
            write_pictures(Path(folder, "data"), size, SHOT + query)
            for side, variables in SIDES.items():
                environment = os.environ | variables | {"GLOCAL_CACHE": str(Path(folder, "cache"))}
                command = [sys.executable, __file__, side, str(size), str(Path(folder, "data"))]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
                found[side] = json.loads(done.stdout)
                took, plain = found[side], found["pseudo-code"]
                faster, less_busy = (plain[what] / took[what] for what in ("seconds", "busy"))
                print(
                    f"  {side:12}{took['seconds']:8.2f} s {faster:5.2f}x faster   processors {took['busy']:7.2f} s "
                    f"{less_busy:5.2f}x   extra {took['extra']:6.0f} MiB {took['extra'] / plain['extra']:5.2f}x",
                    flush=True,
                )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
    else:
        main()
