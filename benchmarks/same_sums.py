"""What one order of sums costs: a step of pre-training at the embedded scale, in one thread, by each order.

    python benchmarks/same_sums.py

The network and batch of ``demo-protonet``, a plain SGD step.  Each order in a process of its own, since torch's
libraries read it when they start; taken in turn, and the fastest step of each counts.
"""

from __future__ import annotations

import os
import subprocess
import sys

from glocal.research.same_sums import ORDER

AVX2 = {name: value for name, value in ORDER.items() if name != "MKL_CBWR"}
ORDERS = {"of the processor": {}, "AVX2, MKL's own": AVX2, "alike": ORDER}
ROUNDS = 3
STEPS = """
import time
import torch
from torch import nn
from glocal.research.backbones import build_backbone
from glocal.research.engine.recipe import load_recipe
torch.set_num_threads(1)
recipe = load_recipe("demo-protonet")
net = build_backbone(recipe.backbone.name, **recipe.backbone.settings).train()
linear = nn.Linear(net.channels, 64)
learning = torch.optim.SGD([*net.parameters(), *linear.parameters()], lr=0.01, momentum=0.9)
size, count = net.preprocess.size, recipe.pretrain.batch_size
images = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8)
times = []
for step in range(8):
    start = time.perf_counter()
    maps = net(net.preprocess.normalize(images).contiguous(memory_format=torch.channels_last))
    learning.zero_grad()
    nn.functional.cross_entropy(linear(maps.mean((2, 3))), torch.arange(count) % 64).backward()
    learning.step()
    times.append(time.perf_counter() - start)
print(min(times))
"""


def main() -> None:
    left = {name: value for name, value in os.environ.items() if name not in ORDER}
    found: dict[str, list[float]] = {name: [] for name in ORDERS}
    for _ in range(ROUNDS):
        for name, told in ORDERS.items():
            command = [sys.executable, "-c", STEPS]
            said = subprocess.run(command, env=left | told, capture_output=True, text=True, check=True).stdout
            found[name].append(float(said))
    alike = min(found["alike"])
    print("| order of sums | seconds a step | alike takes ... times as long |\n|---|---|---|")
    for name, times in found.items():
        print(f"| {name} | {min(times):.2f} | {alike / min(times):.2f} |")


if __name__ == "__main__":
    main()
