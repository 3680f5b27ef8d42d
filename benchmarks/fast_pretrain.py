"""What fast pre-training costs: pictures that grow, as in ``cifar-fs-fast-pretrain``, and bfloat16; accuracy by time.

    GLOCAL_DATA=DIR python benchmarks/fast_pretrain.py --out RUNS [--epochs 2 4] [--width 24] [--seeds 2]

The recipe with a narrow ResNet-12 on the base classes of CIFAR-FS, with pictures of 32 pixels throughout and with
growing ones, in float32 and in bfloat16, each trained in full for every number of epochs, the growing ones also for
twice as many.  Validation is on the validation classes, and by an average of weights everywhere; means over seeds,
with the least and the largest.  Minutes are those of the processor, which other work on the machine disturbs least.  A
run that was stopped goes on; the minutes of what is there already are kept beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path

import numpy as np

from glocal.common.files import write_text
from glocal.research.engine.checkpoint import BEST, read_checkpoint
from glocal.research.engine.train import run_recipe

SIZES = {"32 pixels": ("pretrain.sizes=[]", "pretrain.size_ends=[]"), "16, 24, 32 pixels": ()}
CPU = "cpu.json"


def train(out: Path, overrides: list[str]) -> tuple[float, float, float]:
    """Minutes of the processor, and ACC and AUROC, on validation, of the weights that validation chose."""
    kept = json.loads((out / CPU).read_text("utf-8")) if (out / CPU).exists() else {"seconds": 0.0, "done": False}
    if not kept["done"]:
        began = time.process_time()
        try:
            run_recipe("pretrain", "cifar-fs-fast-pretrain", out, overrides=overrides, resume=out.exists())
            kept["done"] = True
        finally:
            kept["seconds"] += time.process_time() - began
            if out.exists():
                write_text(out / CPU, json.dumps(kept))
    found = read_checkpoint(out / BEST)[1]["validation"]
    return kept["seconds"] / 60, found["acc"], found["auroc"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--width", type=int, default=24, help="Channels of the first stage.")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"])
    given = parser.parse_args()
    width = f"backbone.width={[given.width * n for n in (1, 2, 4, 8)]}"
    line("pictures", "precision", "epochs", "minutes of one core", "ACC", "AUROC")
    line(*["---"] * 6)
    every = sorted({*given.epochs, *(2 * n for n in given.epochs)})
    for epochs, (sizes, settings), precision in product(every, SIZES.items(), given.precisions):
        if sizes == "32 pixels" and epochs not in given.epochs:
            continue
        found = []
        for seed in range(given.seeds):
            how = [f"pretrain.epochs={epochs}", f"seed={seed}", f"speed.precision={precision}", width, *settings]
            name = "-".join([*sizes.replace(",", "").split()[:-1], precision, str(epochs), str(seed)])
            found.append(train(given.out / name, how))
        minutes, *points = np.array(found).T
        cells = (f"{100 * p.mean():.2f} ({100 * p.min():.2f} to {100 * p.max():.2f})" for p in points)
        line(sizes, precision, epochs, f"{minutes.mean():.1f}", *cells)


def line(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
