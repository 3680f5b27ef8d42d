"""docs/results/promise.md, promise.json and promise.png from what promise.py measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from glocal.common.files import write_text

DRAWS = 1000
STATED = (("said_named", "acc", "named right: said, was"), ("said_caught", "caught", "unknown caught: said, was"))
KINDS = ("1", "2", "3", "5", "10")
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
        "task sets its threshold from its own support photos alone. What was tried and what it gained: "
        "[threshold-tried.csv](data/threshold-tried.csv).",
        "",
        "![Promised and achieved share of known photos called unknown, one panel per domain](promise.png)",
        "",
        "The last two panels: what enroll said about names and unknown photos, and what came out (an eighth of all "
        "tasks a point).",
        "",
        "## Known photos called unknown, in %",
        "",
    ]
    lines += _rates(rates, at5, at10, {k: f"{k} photo{'s' * (k != '1')}" for k in KINDS})
    lines += ["The same with two classes:", ""]
    lines += _rates(rates, at5, at10, {k: f"{k.split()[-1]} photos" for k in next(iter(rates.values())) if "two" in k})
    lines += _in_use(every, at5)
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
    _plot(rates, promises, every, out / "promise.png")


def _rates(rates: dict[str, Any], at5: int, at10: int, kinds: dict[str, str]) -> list[str]:
    """A column of each kind, promises 5 and 10 %; last how many domains come near them."""
    lines = ["| domain | " + " | ".join(f"{title}, 5 / 10 %" for title in kinds.values()) + " |"]
    lines.append("|---" * (len(kinds) + 1) + "|")
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
    return [*lines, "| **domains** | " + " | ".join(summary) + " |", ""]


def _in_use(every: dict[str, Any], at5: int) -> list[str]:
    """False and caught unknowns at the thresholds that enroll sets, for both heads."""
    kinds = [*KINDS, "two classes of 5"]
    lines = [
        "## Caught in use: ridge and prototypes with the same calibration, target rate 5 %",
        "",
        "False unknowns and caught unknowns in %, for the ridge head; for cosine prototypes. *Lowest tenth*: what the "
        "tasks catch that catch least, their mean over domains.",
        "",
        "| domain | " + " | ".join(kinds) + " |",
        "|---" * (len(kinds) + 1) + "|",
    ]
    table: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in kinds}
    for name, one in every.items():
        cells = []
        for kind in kinds:
            found = []
            for head in ("ours", "cosine"):
                false, caught = (100 * np.array(one[head][kind][what])[:, at5] for what in ("false", "caught"))
                lowest = np.sort(caught)[: max(1, len(caught) // 10)]
                found += [float(false.mean()), float(caught.mean()), float(lowest.mean())]
            table[kind].append(tuple(found))
            cells.append(f"{found[0]:.1f}, {found[1]:.1f}; {found[3]:.1f}, {found[4]:.1f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    means = [np.mean(table[kind], axis=0) for kind in kinds]
    mean = [f"**{m[0]:.1f}, {m[1]:.1f}**; {m[3]:.1f}, {m[4]:.1f}" for m in means]
    lines += ["| **mean** | " + " | ".join(mean) + " |"]
    return [*lines, "| lowest tenth | " + " | ".join(f"{m[2]:.1f}; {m[5]:.1f}" for m in means) + " |", ""]


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
        "First the classes have 1 to 10 photos. Then all have eight, and one class more comes with a single photo: "
        "*others* are unknown photos nearest to a class with eight, before and after it came; beside them all unknown "
        "photos, and the same when it has eight photos too.",
        "",
        "| domain | 1 to 10: false, caught | others caught before, after | all caught: one photo, eight "
        "| one-photo class: false, named right | eight-photo classes: false, named right |",
        "|---|---|---|---|---|---|",
    ]
    moved = []
    for name, one in every.items():
        mixed, cut = one["ours"]["1 to 10"], {key: np.array(value) for key, value in one["cut"].items()}
        false, caught = (100 * np.array(mixed[key])[:, at5].mean() for key in ("false", "caught"))
        before, after = (100 * cut[key].sum() / cut["others"].sum() for key in ("others_before", "others_after"))
        rest = {key: 100 * values.mean() for key, values in cut.items()}
        moved.append(after - before)
        lines.append(
            f"| {name} | {false:.1f}, {caught:.1f} | {before:.1f}, {after:.1f} | {rest['caught_1']:.1f}, "
            f"{rest['caught_8']:.1f} | {rest['first_false']:.1f}, {rest['first_named']:.1f} "
            f"| {rest['other_false']:.1f}, {rest['other_named']:.1f} |"
        )
    most = max(moved, key=abs)
    lines += [
        "",
        f"A class with a single photo moves what the others catch by {np.mean(moved):+.1f} points in the mean over "
        f"domains, and by {most:+.1f} where it moves most.",
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


def _told(every: dict[str, Any], kind: str) -> dict[str, Any]:
    """Over all tasks of all domains: what was said before, and what happened."""
    rows = [one["ours"][kind] for one in every.values()]
    found = {
        key: np.concatenate([np.array(each[key], dtype=float) for each in rows])
        for key in ("said_named", "said_caught", "acc", "way", "inside")
    }
    found["caught"] = np.concatenate([np.array(each["caught"])[:, 1] for each in rows])
    found["usable"] = [value for each in rows for value in each["usable"]]
    found["mixed up"] = [value for one in every.values() for value in one["mixed up"][kind]]
    return found


def _said(every: dict[str, Any]) -> list[str]:
    lines = [
        "## What enroll says, and what happens",
        "",
        "Over all tasks: said before (each photo judged by the others, each class left out) and what came out, in %. "
        "*Near chance* are tasks that name right less than 1.3 times as often as guessing; there are few, so beside "
        "them the same photos in the wrong folders, where nothing is left to name by. With one photo per class "
        "nothing is left to judge a photo by, and enroll says that it cannot be told.",
        "",
        "| photos | named right: said / was, mean off by | caught: said / was, mean off by "
        "| near chance: called not usable | others called not usable | wrong folders: called not usable "
        "| not judged | rate inside the stated interval |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in ("1", "2", "3", "5", "10"):
        told = _told(every, kind)
        bad = told["acc"] < 1.3 / told["way"]
        refused = np.array([value is False for value in told["usable"]])
        silent = np.array([value is None for value in told["usable"]])
        cells = [
            "-"
            if np.isnan(told[said]).all()
            else f"{100 * told[said].mean():.1f} / {100 * told[was].mean():.1f}, "
            f"{100 * abs(told[said] - told[was]).mean():.1f}"
            for said, was in (("said_named", "acc"), ("said_caught", "caught"))
        ]
        mixed = [value is False for value in told["mixed up"]]
        lines.append(
            f"| {kind} | {cells[0]} | {cells[1]} "
            f"| {int(refused[bad].sum())} of {int(bad.sum())} | {int(refused[~bad].sum())} of {int((~bad).sum())} "
            f"| {sum(mixed)} of {len(mixed)} | {int(silent.sum())} of {len(silent)} "
            f"| {100 * told['inside'].mean():.0f} % |"
        )
    return [*lines, ""]


def _plot(rates: dict[str, Any], promises: list[float], every: dict[str, Any], path: Path) -> None:
    figure, axes = plt.subplots(3, 5, figsize=(12, 7.6), layout="constrained")
    for axis, (name, found) in zip(axes.flat, rates.items(), strict=False):
        for kind, colour in PLOTTED.items():
            axis.plot(
                [100 * each for each in promises], found[kind], color=colour, marker="o", markersize=3, label=kind
            )
        _frame(axis, name, 35, 45)
    for axis, (said, was, title) in zip(axes.flat[len(rates) :], STATED, strict=False):
        for kind, colour in PLOTTED.items():
            told = _told(every, kind)
            if np.isnan(told[said]).all():
                continue
            order = np.argsort(told[said], kind="stable")
            points = [
                (100 * told[said][part].mean(), 100 * told[was][part].mean()) for part in np.array_split(order, 8)
            ]
            axis.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=3)
        _frame(axis, title, 100, 100)
        axis.set_facecolor("#f1f3f5")
    axes.flat[0].legend(title="photos per class", fontsize=7, title_fontsize=7)
    figure.supxlabel("promised: known photos called unknown, %  (grey panels: said, %)", fontsize=9)
    figure.supylabel("achieved, %", fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _frame(axis: Any, title: str, right: float, top: float) -> None:
    axis.plot([0, right], [0, right], color="#adb5bd", linewidth=1, zorder=0)
    axis.set_title(title, fontsize=9)
    axis.set_xlim(0, right)
    axis.set_ylim(0, top)
    axis.tick_params(labelsize=7)
