"""docs/results/promise.md, promise.json and promise.png from what promise.py measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from glocal_runtime.files import write_text

DRAWS = 1000
PLOTTED = {"1": "#c92a2a", "3": "#e8890c", "5": "#2b8a3e", "10": "#1864ab"}


def interval(values: Any, classes: list[list[int]]) -> tuple[float, float, float]:
    """Mean and 95 % interval over draws of classes: each class gets a random weight, a task the mean of its classes.

    A class is one of ``way`` in its tasks, so its weight moves the mean by a share of what drawing it moves: the
    deviations are taken ``way`` times.
    """
    found, rng = np.asarray(values, dtype=float), np.random.default_rng(0)
    weight = rng.exponential(size=(DRAWS, 1 + max(map(max, classes))))
    of_task = weight[:, np.array(classes)].mean(axis=2)
    means = (of_task * found).sum(axis=1) / of_task.sum(axis=1)
    low, high = found.mean() + len(classes[0]) * (np.quantile(means, [0.025, 0.975]) - found.mean())
    return float(found.mean()), float(low), float(high)


def write_page(result: dict[str, Any], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    every, promises = result["domains"], list(result["promises"])
    at5, at10 = promises.index(0.05), promises.index(0.1)
    rates = {
        name: {kind: 100 * np.array(rows["false"]).mean(axis=0) for kind, rows in one["ours"].items()}
        for name, one in every.items()
    }
    lines = [
        "# The promise, on photos nobody has seen",
        "",
        f"Written by `benchmarks/promise.py --tasks {result['tasks']} --encoder {result['encoder']}`: thirteen "
        f"domains, {result['tasks']} tasks of each kind, all that is fitted without the domain that is measured. A "
        "task is 5 classes (3 where a domain has 6), 8 further photos of each and 8 of as many unknown classes; every "
        "task sets its thresholds, one per class, from its own support photos alone.",
        "",
        "![Promised and achieved share of known photos called unknown, one panel per domain](promise.png)",
        "",
        "## Known photos called unknown, in %",
        "",
    ]
    kinds = ["1", "2", "3", "5", "10"]
    head = "| domain | " + " | ".join(f"{k} photo{'s' * (k != '1')}, 5 / 10 %" for k in kinds) + " |"
    lines += [head, "|---" * (len(kinds) + 1) + "|"]
    for name, found in rates.items():
        cells = [f"{found[kind][at5]:.1f} / {found[kind][at10]:.1f}" for kind in kinds]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    summary = []
    for kind in kinds:
        pair = []
        for at, promise in ((at5, 5.0), (at10, 10.0)):
            got = np.array([found[kind][at] for found in rates.values()])
            close = int((abs(got - promise) <= 1.5).sum())
            far = int((abs(got - promise) <= 3).sum())
            half = int(((got >= promise / 2) & (got <= 1.5 * promise)).sum())
            pair.append(f"{close} within 1.5, {far} within 3, {half} within a half")
        summary.append(" / ".join(pair))
    lines += ["| **domains** | " + " | ".join(summary) + " |", ""]
    lines += _against_cosine(every)
    lines += _unequal(every, at5)
    lines += ["## Many classes (Caltech), promise 5 %", "", "| task | false | caught | ACC |", "|---|---|---|---|"]
    for name, values in result.get("many", {}).items():
        lines.append(f"| {name} | " + " | ".join(f"{100 * value:.1f}" for value in values) + " |")
    lines += ["", *_known_unknowns(every)]
    lines += _said(every)
    write_text(out / "promise.md", "\n".join(lines) + "\n")
    write_text(
        out / "promise.json",
        json.dumps({"rates": {d: {k: v.tolist() for k, v in r.items()} for d, r in rates.items()}}),
    )
    _plot(rates, promises, out / "promise.png")


def _against_cosine(every: dict[str, Any]) -> list[str]:
    lines = [
        "## Against cosine prototypes on the same encoder and tasks",
        "",
        "Differences in points, with 95 % intervals over the classes of a domain; *caught* is the share of unknown "
        "photos caught when exactly 5 % of the known ones are called unknown.",
        "",
    ]
    for kind in ("1", "5", "10"):
        lines += [
            f"### {kind} photo{'s' * (kind != '1')} per class",
            "",
            "| domain | ACC | AUROC | caught | cosine: ACC / AUROC / caught |",
            "|---|---|---|---|---|",
        ]
        mean: dict[str, list[float]] = {"acc": [], "auroc": [], "at_true": []}
        for name, one in every.items():
            ours, theirs = one["ours"][kind], one["cosine"][kind]
            cells = []
            for what in mean:
                off = 100 * (np.array(ours[what]) - np.array(theirs[what]))
                value, low, high = interval(off, ours["classes"])
                mean[what].append(value)
                cells.append(f"{value:+.1f} ({low:+.1f} to {high:+.1f})")
            base = " / ".join(f"{100 * np.mean(theirs[what]):.1f}" for what in mean)
            lines.append(f"| {name} | " + " | ".join(cells) + f" | {base} |")
        lines += ["| **mean** | " + " | ".join(f"**{np.mean(mean[what]):+.1f}**" for what in mean) + " | |", ""]
    return lines


def _unequal(every: dict[str, Any], at5: int) -> list[str]:
    lines = [
        "## Unequal classes, promise 5 %",
        "",
        "*first* is the class with one photo, *others* those with eight.",
        "",
        "| domain | 1 to 10 photos: false, caught | 8 each: false, caught | one with 1, others 8: caught "
        "| first: false | others: false | ACC |",
        "|---|---|---|---|---|---|---|",
    ]
    moved = []
    for name, one in every.items():
        mixed, even, odd = (one["ours"][kind] for kind in ("1 to 10", "8 each", "one with 1, others 8"))
        caught = [100 * np.array(each["caught"])[:, at5].mean() for each in (mixed, even, odd)]
        false = [100 * np.array(each["false"])[:, at5].mean() for each in (mixed, even)]
        first, others = 100 * np.mean(odd["first_false"]), 100 * np.mean(odd["other_false"])
        moved.append((caught[2] - caught[1], others - 100 * np.mean(even["other_false"])))
        lines.append(
            f"| {name} | {false[0]:.1f}, {caught[0]:.1f} | {false[1]:.1f}, {caught[1]:.1f} | {caught[2]:.1f} "
            f"| {first:.1f} | {others:.1f} | {100 * np.mean(odd['acc']):.1f} |"
        )
    by = np.mean(moved, axis=0)
    lines += [
        "",
        f"With one class cut to a single photo the share caught moves by {by[0]:+.1f} points in the mean over domains "
        f"and the false unknowns of the other classes by {by[1]:+.1f}.",
        "",
    ]
    return lines


def _known_unknowns(every: dict[str, Any]) -> list[str]:
    counts = list(next(iter(every.values()))["known unknowns"])
    lines = [
        "## Known unknowns: photos of other classes, which are asked about nowhere",
        "",
        "5 photos per class, promise 5 %: false unknowns, caught and AUROC, in %.",
        "",
        "| domain | " + " | ".join("none" if n == "0" else f"{n} photos" for n in counts) + " |",
        "|---" * (len(counts) + 1) + "|",
    ]
    total = {n: [] for n in counts}
    for name, one in every.items():
        found = one["known unknowns"]
        for n in counts:
            total[n].append([100 * value for value in found[n]])
        lines.append(f"| {name} | " + " | ".join(" / ".join(f"{100 * v:.1f}" for v in found[n]) for n in counts) + " |")
    means = {n: np.mean(rows, axis=0) for n, rows in total.items()}
    lines += ["| **mean** | " + " | ".join(" / ".join(f"{v:.1f}" for v in means[n]) for n in counts) + " |", ""]
    return lines


def _said(every: dict[str, Any]) -> list[str]:
    lines = [
        "## What enroll says, and what happens",
        "",
        "Over all tasks: said before (each photo judged by the others, each class left out) and what came out, in %.",
        "",
        "| photos | named right: said / was, mean off by | caught: said / was, mean off by "
        "| tasks below 1.3 times chance: called not usable | others called not usable "
        "| rate inside the stated interval |",
        "|---|---|---|---|---|---|",
    ]
    for kind in ("1", "2", "3", "5", "10"):
        rows = [one["ours"][kind] for one in every.values()]
        said, was = (
            np.concatenate([np.array(each[key], dtype=float) for each in rows]) for key in ("said_named", "acc")
        )
        told, got = (
            np.concatenate([np.array(each["said_caught"], dtype=float) for each in rows]),
            np.concatenate([np.array(each["caught"])[:, 1] for each in rows]),
        )
        way = np.concatenate([np.array(each["way"]) for each in rows])
        usable = [value for each in rows for value in each["usable"]]
        bad = was < 1.3 / way
        refused = np.array([value is False for value in usable])
        named = (
            "-"
            if np.isnan(said).all()
            else (f"{100 * np.nanmean(said):.1f} / {100 * was.mean():.1f}, {100 * np.nanmean(abs(said - was)):.1f}")
        )
        lines.append(
            f"| {kind} | {named} "
            f"| {100 * told.mean():.1f} / {100 * got.mean():.1f}, {100 * abs(told - got).mean():.1f} "
            f"| {int(refused[bad].sum())} of {int(bad.sum())} | {int(refused[~bad].sum())} of {int((~bad).sum())} "
            f"| {100 * np.mean(np.concatenate([each['inside'] for each in rows])):.0f} % |"
        )
    return [*lines, ""]


def _plot(rates: dict[str, Any], promises: list[float], path: Path) -> None:
    figure, axes = plt.subplots(3, 5, figsize=(12, 7.2), sharex=True, sharey=True, layout="constrained")
    for axis, (name, found) in zip(axes.flat, rates.items(), strict=False):
        axis.plot([0, 35], [0, 35], color="#adb5bd", linewidth=1)
        for kind, colour in PLOTTED.items():
            axis.plot(
                [100 * each for each in promises], found[kind], color=colour, marker="o", markersize=3, label=kind
            )
        axis.set_title(name, fontsize=9)
        axis.set_xlim(0, 35)
        axis.set_ylim(0, 45)
    for axis in axes.flat[len(rates) :]:
        axis.axis("off")
    axes.flat[0].legend(title="photos per class", fontsize=7, title_fontsize=7)
    figure.supxlabel("promised: known photos called unknown, %", fontsize=9)
    figure.supylabel("achieved, %", fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)
