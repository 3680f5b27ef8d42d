"""Pixel-wise similarity: the paper's Algorithm 1 against ours, same inputs, in one run.

    python benchmarks/pixel_similarity.py

150 queries, 5 classes, 5x5 maps, 320 channels.  Each side runs in a process of its own, so that its peak memory is its
own; extra memory is that peak above what the process held with the inputs ready (Linux, /proc).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import torch

from glocal.research.ops.similarity import pixel_similarity

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from reference.similarity import algorithm_1

SIDES = {"algorithm 1": (algorithm_1, 2), "glocal": (pixel_similarity, 100)}  # function, timed repeats
QUERIES, CLASSES, CHANNELS, SIZE = 150, 5, 320, 5


def memory(field: str) -> float:
    """MiB: VmRSS is what the process holds now, VmHWM the most it ever held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field))) / 1024


def measure(side: str, top_k: int, backward: bool) -> dict[str, float]:
    function, repeats = SIDES[side]
    rng = torch.Generator().manual_seed(0)
    inputs = [torch.randn(n, CHANNELS, SIZE, SIZE, generator=rng) for n in (QUERIES, CLASSES)]
    for x in inputs:
        x.requires_grad_(backward)

    def run(query: torch.Tensor, class_map: torch.Tensor) -> torch.Tensor:
        out = function(query, class_map, top_k)
        if backward:
            torch.autograd.grad(out.sum(), (query, class_map))
        return out.detach()

    run(*(x[:1] for x in inputs))  # libraries and threads are loaded before anything is counted
    held = memory("VmRSS")
    total = run(*inputs).double().sum().item()
    extra = memory("VmHWM") - held
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run(*inputs)
        seconds.append(time.perf_counter() - start)
    return {"seconds": min(seconds), "extra": extra, "total": total}


def main() -> None:
    threads = torch.get_num_threads()
    print(f"{QUERIES} queries, {CLASSES} classes, {SIZE}x{SIZE} maps, {CHANNELS} channels, threads: {threads}")
    print(f"{'':28}{'algorithm 1':>24}{'glocal':>24}{'faster':>10}{'less memory':>14}")
    for backward in (False, True):
        for top_k in (1, 10):
            found = {}
            for side in SIDES:
                command = [sys.executable, __file__, side, str(top_k), str(int(backward))]
                found[side] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            slow, fast = found.values()
            if abs(slow["total"] - fast["total"]) > 1e-3 * abs(slow["total"]):
                raise SystemExit(f"the two sides disagree: {slow['total']} and {fast['total']}")
            columns = [f"{1e3 * side['seconds']:9.1f} ms {side['extra']:7.1f} MiB" for side in (slow, fast)]
            name = f"{'forward + backward' if backward else 'forward'}, k = {top_k}"
            ratios = f"{slow['seconds'] / fast['seconds']:9.0f}x{slow['extra'] / max(fast['extra'], 0.1):13.0f}x"
            print(f"{name:28}{columns[0]:>24}{columns[1]:>24}{ratios}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), bool(int(sys.argv[3])))))
    else:
        main()
