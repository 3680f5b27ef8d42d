"""One step of pre-training the full-width ResNet-12: what small pictures, our convolutions and bfloat16 each gain.

    python benchmarks/pretrain_step.py

128 pictures, forward, backward and update.  Plain: PyTorch's convolutions in float32 and its default memory layout.
Time is that of the fastest of a few steps, summed over the processors, which other load disturbs least.  bfloat16
gains where the processor has matrix instructions (AMX), and loses where it has to be emulated; the first line says.
"""

from __future__ import annotations

import os
import time

import torch
import torch.nn.functional as F
from torch import nn

from glocal.common.errors import RecipeError
from glocal.research.backbones.resnet12 import Conv3x3, ResNet12
from glocal.research.engine.bfloat16 import check_bfloat16
from glocal.research.ops.similarity import pool

PICTURES, CLASSES, STEPS = 128, 64, 5
SIZES = (16, 24, 32)
LAYOUTS = {True: torch.contiguous_format, False: torch.channels_last}


def seconds(size: int, *, plain: bool = False, precision: torch.dtype = torch.float32) -> float:
    torch.manual_seed(0)
    backbone = ResNet12(image_size=32, drop_rate=0.0).to(memory_format=LAYOUTS[plain])
    if plain:
        for layer in backbone.modules():
            if isinstance(layer, Conv3x3):
                layer.__class__ = nn.Conv2d  # the same weights, summed by the library
    classifier = nn.Linear(backbone.channels, CLASSES)
    rates = {"lr": 0.01, "momentum": 0.9, "nesterov": True}
    optimizer = torch.optim.SGD([*backbone.parameters(), *classifier.parameters()], **rates)
    images = torch.randn(PICTURES, 3, size, size).contiguous(memory_format=LAYOUTS[plain])
    label = torch.randint(CLASSES, (PICTURES,))
    took = []
    for _ in range(STEPS):
        began = time.process_time()
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            maps = backbone(images)
        optimizer.zero_grad()
        F.cross_entropy(classifier(pool(maps.float())), label).backward()
        optimizer.step()
        took.append(time.process_time() - began)
    return min(took)


def main() -> None:
    flags = ("AMX", torch.cpu._is_amx_tile_supported()), ("AVX-512 bfloat16", torch.cpu._is_avx512_bf16_supported())
    has = ", ".join(name for name, there in flags if there) or "no instructions for bfloat16"
    print(f"{PICTURES} pictures, threads: {torch.get_num_threads()}, load: {os.getloadavg()[0]:.1f}; {has}\n")
    sides: dict[str, dict[str, object]] = {"plain float32": {"plain": True}, "float32": {}}
    try:
        check_bfloat16()
        sides["bfloat16"] = {"precision": torch.bfloat16}
    except RecipeError as error:
        print(f"without bfloat16: {error}\n")
    print("| pictures | " + " | ".join(f"{side}, s | times as fast" for side in sides) + " |")
    print("|---" * (1 + 2 * len(sides)) + "|")
    every = {size: [seconds(size, **how) for how in sides.values()] for size in SIZES}  # type: ignore[arg-type]
    reference = every[32][0]
    for size, found in every.items():
        print(f"| {size} px | " + " | ".join(f"{t:.2f} | {reference / t:.1f}" for t in found) + " |", flush=True)


if __name__ == "__main__":
    main()
