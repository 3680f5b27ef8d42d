"""Pre-training with pictures that grow, as in ``cifar-fs-fast-pretrain``, against the plain recipe: accuracy by time.

    GLOCAL_DATA=DIR python benchmarks/growing_pictures.py --out RUNS [--epochs 2 4] [--width 24]

Both recipes with a narrow ResNet-12 on the base classes of CIFAR-FS, each trained in full for every number of epochs,
the fast one also for twice as many; validation is on the validation classes, and by an average of weights in both, so
that only the sizes of the pictures differ.  Minutes are those of the processor, which other work on the machine
disturbs least.  A run that was stopped goes on; the minutes of what is there already are kept beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from glocal.engine.checkpoint import BEST, read_checkpoint
from glocal.engine.train import run_recipe
from glocal_runtime.files import write_text

PLAIN = ("pretrain.sizes=[]", "pretrain.size_ends=[]")
CPU = "cpu.json"


def train(out: Path, epochs: int, width: int, overrides: tuple[str, ...]) -> tuple[float, dict[str, float]]:
    """Minutes of the processor, and what validation says of the weights that it chose."""
    settings = [f"pretrain.epochs={epochs}", f"backbone.width={[width * n for n in (1, 2, 4, 8)]}", *overrides]
    kept = json.loads((out / CPU).read_text("utf-8")) if (out / CPU).exists() else {"seconds": 0.0, "done": False}
    if not kept["done"]:
        began = time.process_time()
        try:
            run_recipe("pretrain", "cifar-fs-fast-pretrain", out, overrides=settings, resume=out.exists())
            kept["done"] = True
        finally:
            kept["seconds"] += time.process_time() - began
            if out.exists():
                write_text(out / CPU, json.dumps(kept))
    return kept["seconds"] / 60, read_checkpoint(out / BEST)[1]["validation"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--width", type=int, default=24, help="Channels of the first stage.")
    given = parser.parse_args()
    print("| pictures | epochs | minutes of one core | ACC | AUROC |\n|---|---|---|---|---|", flush=True)
    for epochs in sorted({*given.epochs, *(2 * n for n in given.epochs)}):
        for kind, overrides in {"32 pixels": PLAIN, "16, 24, 32 pixels": ()}.items():
            if kind == "32 pixels" and epochs not in given.epochs:
                continue
            folder = given.out / f"{kind.replace(', ', '-').replace(' ', '-')}-{epochs}"
            minutes, found = train(folder, epochs, given.width, overrides)
            row = (kind, epochs, f"{minutes:.1f}", f"{100 * found['acc']:.2f}", f"{100 * found['auroc']:.2f}")
            print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
