"""SnaTCHer-F's open score: query by query as published, the plain batch (Q, N, D), and ours, in one run.

    python benchmarks/snatcher.py

One 5-way task of 150 queries, without gradients, at two widths.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from glocal.research.methods.snatcher import SnaTCHerF, movement
from glocal.research.types import Views

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from reference.snatcher import movement as loop

QUERIES, CLASSES, REPEATS = 150, 5, 15
WIDTHS = (640, 192)  # the paper's ResNet-12, and the narrow one that trains on a CPU


def fastest(run: Callable[[], Tensor]) -> tuple[float, Tensor]:
    best, out = float("inf"), run()
    for _ in range(REPEATS):
        start = time.perf_counter()
        out = run()
        best = min(best, time.perf_counter() - start)
    return best, out


@torch.no_grad()
def compare(dim: int) -> None:
    torch.manual_seed(0)
    method = SnaTCHerF(dim).eval()
    state = method.enroll(Views(torch.randn(CLASSES, dim).relu()), torch.eye(CLASSES))
    query = torch.randn(QUERIES, dim).relu()
    logits = method.compare(state, Views(query)).logits

    def plain(raw: Tensor, other: Tensor, at: Tensor) -> Tensor:
        sets = raw.repeat(len(other), 1, 1)
        sets[torch.arange(len(other)), at] = other
        return method.attend(sets)

    results = {
        "query by query": fastest(lambda: loop(method.attend, state.raw, query, logits)),
        "plain batch": fastest(lambda: movement(plain, state, query, logits)),
        "glocal": fastest(lambda: movement(method.attend.swapped, state, query, logits)),
    }
    print(f"{QUERIES} queries, {CLASSES} classes, {dim} channels, threads: {torch.get_num_threads()}")
    slowest, expected = results["query by query"]
    for name, (seconds, out) in results.items():
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
        print(f"  {name:16}{1e3 * seconds:9.2f} ms{slowest / seconds:9.1f}x")


if __name__ == "__main__":
    for width in WIDTHS:
        compare(width)
