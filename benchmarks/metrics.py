"""All metrics of 600 tasks x 150 queries: glocal against scikit-learn, the same data and numbers, in one run.

    python benchmarks/metrics.py

scikit-learn has no OSCR: there it is the AUROC without the misnamed known queries, times the accuracy.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score, roc_curve

from glocal.research.metrics import METRICS, block_metrics, task_metrics
from glocal.research.types import UNKNOWN

TASKS, WAY, QUERIES, REPEATS = 600, 5, 15, 3
Rows = dict[str, np.ndarray]


def draw(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits (T, Q, N), open scores (T, Q) rounded so that some tie, labels (T, Q); half the queries unknown."""
    rng = np.random.default_rng(seed)
    label = np.tile(np.r_[np.repeat(np.arange(WAY), QUERIES), np.full(WAY * QUERIES, UNKNOWN)], (TASKS, 1))
    logits = rng.normal(size=(*label.shape, WAY)) + 1.5 * (label[..., None] == np.arange(WAY))
    open_score = np.round(rng.normal(size=label.shape) + (label == UNKNOWN), 2)
    return logits, open_score, label


def sklearn_task(logits: np.ndarray, score: np.ndarray, label: np.ndarray) -> dict[str, float]:
    known = label != UNKNOWN
    answer = logits.argmax(axis=1)
    acc = accuracy_score(label[known], answer[known])
    fpr, tpr, _ = roc_curve(~known, score, drop_intermediate=False)
    cut = np.sort(score)[::-1][(~known).sum() - 1]
    keep = ~known | (answer == label)
    return {
        "acc": acc,
        "auroc": roc_auc_score(~known, score),
        "aupr": average_precision_score(~known, score),
        "fpr95": fpr[np.argmax(tpr >= 0.95)],
        "f1": f1_score(~known, score >= cut),
        "oscr": roc_auc_score(~known[keep], score[keep]) * acc,
    }


def each_task(measure: Callable[..., dict[str, float]], data: tuple[np.ndarray, ...]) -> Rows:
    rows = [measure(*task) for task in zip(*data, strict=True)]
    return {name: np.array([row[name] for row in rows]) for name in METRICS}


def fastest(run: Callable[[], Rows]) -> tuple[float, Rows]:
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        rows = run()
        best = min(best, time.perf_counter() - start)
    return best, rows


def main() -> None:
    data = draw(seed=0)
    slow, expected = fastest(lambda: each_task(sklearn_task, data))
    print(f"{TASKS} tasks x {2 * WAY * QUERIES} queries, {len(METRICS)} metrics, best of {REPEATS}")
    print(f"{'scikit-learn, task by task':28} {slow * 1e3:9.1f} ms")
    for title, run in (
        ("glocal, task by task", lambda: each_task(task_metrics, data)),
        ("glocal, one block", lambda: block_metrics(*data)),
    ):
        seconds, rows = fastest(run)
        gap = max(np.abs(rows[name] - expected[name]).max() for name in METRICS)
        if gap > 1e-12:
            raise SystemExit(f"{title}: differs from scikit-learn by {gap:.1e}, so its time means nothing")
        print(f"{title:28} {seconds * 1e3:9.1f} ms   {slow / seconds:6.1f}x faster, equal to {gap:.0e}")


if __name__ == "__main__":
    main()
