"""Every score that the authors' program prints of a run, on frozen maps: docs/results/data/cifar-fs-full-scores.csv.

    GLOCAL_DATA=DIR python benchmarks/gel_scores.py WORK

Heads are those of ``which_method.py``: as published but on frozen maps, after a FEAT stage without an adapter.
Differences are paired over the test tasks and taken against SnaTCHer-F.
"""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path

import torch
from which_method import GROUNDS, METRICS, SHOTS, head_of

from glocal import compare
from glocal.common.files import write_text
from glocal.research.data import open_dataset
from glocal.research.metrics import mean_ci, paired_difference

DATA = "cifar-fs"
# Of each run its energy, the distance, their sum, and the same with the movement in place of the distance.
SCORES = {
    "snatcher-f": ("snatcher", "distance"),
    "gel-maps": ("E_m", "distance", "E_m+distance", "snatcher", "E_m+snatcher"),
    "gel-pixel": ("E_f", "distance", "delay", "snatcher", "E_f+snatcher"),
    "gel": ("E", "distance", "E+distance", "snatcher", "E+snatcher"),
}
COLUMNS = ("shot", "run", "score", "tasks", "acc", "acc_half", "auroc", "auroc_half", "difference", "low", "high")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results/data/cifar-fs-full-scores.csv"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    data, tasks, table = open_dataset(DATA, "test"), GROUNDS[DATA].tasks, io.StringIO()
    sheet = csv.writer(table, lineterminator="\n")
    sheet.writerow(COLUMNS)
    for shot in SHOTS:
        runs = [
            f"{name}={head_of(name, DATA, shot, given.work / DATA, 0)}:{','.join(scores)}"
            for name, scores in SCORES.items()
        ]
        keep = given.work / "rows" / f"{DATA}-scores"
        found = compare(runs, data, shots=(shot,), tasks=tasks, keep=keep, workers=1)
        base = found.evaluations[0][found.reference].rows["auroc"]
        for name, each in found.evaluations[0].items():
            means = [mean_ci(each.rows[metric]) for metric in METRICS]
            more = paired_difference(each.rows["auroc"], base)
            numbers = [part for interval in means for part in (interval.mean, interval.half)]
            shown = [f"{100 * number:.2f}" for number in (*numbers, more.mean, more.low, more.high)]
            sheet.writerow([shot, *name.split(":"), tasks, *shown])
    write_text(given.out, table.getvalue())


if __name__ == "__main__":
    main()
