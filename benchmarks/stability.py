"""Do trainings of the embedded scale give the same findings from other seeds and with another number of threads?

Another number of threads takes sums in another order: the same recipe and seed then end with other weights.  Every seed
is trained once with each number of threads, and the page says how far AUROC moves by either.

    python benchmarks/stability.py --out DIR --seeds 5 --threads 1 2

Seed by seed: the page holds what is there.  The runs are those of ``glocal reproduce ablation --scale embedded --set
speed.threads=N``, and are reused by it from DIR/threads-N; the recipes themselves name one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from glocal.common.files import write_text
from glocal.research.metrics import spread
from glocal.research.report.table import points
from glocal.research.reproduce.graph import MeasureStep, in_order, work_off
from glocal.research.reproduce.machine import machine, text
from glocal.research.reproduce.measurement import measure
from glocal.research.reproduce.plans import SHOTS, TABLES, Line
from glocal.research.reproduce.runs import Settings, folder_of, program
from glocal.research.reproduce.scale import Scale
from glocal.research.reproduce.scales import SCALES
from glocal.research.same_sums import as_words, sums_alike

Found = dict[tuple[int, int, str], list[float]]  # threads, shot, row -> AUROC by seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rows", nargs="+", help="of the ablation; all unless given, the first is the reference")
    parser.add_argument("--page", type=Path, help="write it there, too")
    asked = parser.parse_args()
    if asked.seeds < 2:
        parser.error(f"a spread takes at least 2 seeds, got {asked.seeds}")
    scales = {n: SCALES["embedded"].set_as("paper", [f"speed.threads={n}"]) for n in asked.threads}
    labels = [line.label for line in _lines(SCALES["embedded"], SHOTS[0], asked.rows)]
    for seeds in range(1, asked.seeds + 1):
        found: Found = {}
        for threads, scale in scales.items():
            how = Settings(asked.out / f"threads-{threads}", scale.tasks, workers=1, seeds=seeds)
            for shot in SHOTS:
                lines = _lines(scale, shot, asked.rows)
                step = MeasureStep(scale.datasets[0], shot, tuple(lines), seeds)
                work_off(in_order([step]), how)
                folders = {run: folder_of(run, how.runs) for run in step.runs()}
                there = measure(step.dataset, shot, lines, folders, how)
                for line in lines:
                    each = [float(there._row(line, seed)["auroc"].mean()) for seed in range(seeds)]
                    found[threads, shot, line.label] = each
        print(f"{seeds} seeds", flush=True)
        if seeds > 1:
            page = page_of(found, asked.threads, seeds, labels, asked.rows)
            for path in {asked.out / "stability.md", asked.page or asked.out / "stability.md"}:
                write_text(path, page)
    print(page)


def _lines(scale: Scale, shot: int, rows: Sequence[str] | None) -> list[Line]:
    every = {line.label: line for line in TABLES["ablation"].lines(scale, scale.datasets[0], shot)}
    return [every[label] for label in rows or every]


def page_of(found: Found, threads: Sequence[int], seeds: int, labels: Sequence[str], rows: Sequence[str] | None) -> str:
    quoted = " ".join(f'"{label}"' for label in rows or ())
    command = f"python benchmarks/stability.py --out DIR --seeds {seeds} --threads {' '.join(map(str, threads))}"
    command += f" --rows {quoted}" if quoted else ""
    command = f"{as_words()} {command}" if sums_alike() else command
    reference = labels[0]
    titles = ["shot", "row", *(f"AUROC, {_threads(n)}" for n in threads), "moved by threads"]
    titles += [f"less {reference}, {_threads(n)}" for n in threads]
    lines = [" | ".join(["", *titles, ""]).strip(), "|" + "---|" * len(titles)]
    for shot in SHOTS:
        for label in labels:
            values = {n: np.array(found[n, shot, label]) for n in threads}
            base = {n: np.array(found[n, shot, reference]) for n in threads}
            several = np.stack(list(values.values()))
            moved = several.max(axis=0) - several.min(axis=0)
            cells = [str(shot), label]
            cells += [f"{100 * v.mean():.2f} ± {100 * v.std(ddof=1):.2f}" for v in values.values()]
            cells.append(f"{100 * moved.mean():.2f}, at most {100 * moved.max():.2f}")
            for n in threads:
                gap = spread(values[n] - base[n])
                text_of = f"{points(gap.mean)} [{points(gap.low)}, {points(gap.high)}]"
                cells.append("" if label == reference else text_of)
            lines.append("| " + " | ".join(cells) + " |")
    here = machine()
    head = [
        "# Other seeds, other threads",
        "",
        f"The ablation of the embedded scale, trained from {seeds} seeds with "
        f"{' and with '.join(map(_threads, threads))} each: pre-training, heads and all. AUROC in percent on the same "
        "test tasks: mean and standard deviation over seeds; how far a seed moves when only the number of threads "
        f"changes, on average and at most; and the difference to {reference} with its 95 % interval over seeds "
        "(Student).",
        "",
    ]
    tail = ["", f"Machine: {text(here)}; glocal {program()}.", "", "```sh", command, "```", ""]
    return "\n".join([*head, *lines, *tail])


def _threads(n: int) -> str:
    return f"{n} thread{'s' if n > 1 else ''}"


if __name__ == "__main__":
    main()
