"""Is the promise kept?  Promised against achieved false-unknown rates on classes nobody has trained or chosen with.

    GLOCAL_DATA=DIR python benchmarks/promise.py --out docs/results [--tasks 1000] [--work DIR]

For each setting random tasks are drawn (seed 0), every task gets its threshold from its own support photos alone, and
the rest is counted: known photos called unknown, and unknown photos caught.  Heads: photos-gel and, as the plain
baseline, photos-protonet (cosine prototypes on the same features), each with the score model it ships with.  The second
part sends CIFAR-FS pictures of 32 pixels through the same heads: a shift in domain.

Tasks reuse few photos, so intervals come from a bootstrap over classes.  Finished settings are kept in --work and not
measured again.  Writes promise.json, promise.md, promise.png and promise.svg; some ten minutes on a free core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from glocal.data.dataset import ClassDataset
from glocal.data.episodes import Draw, EpisodeSampler, EpisodeSpec
from glocal.data.features import FeatureBank
from glocal.data.registry import open_dataset
from glocal.engine.calibrate import score_model_of
from glocal.engine.checkpoint import Model, load_model
from glocal.engine.score_fit import score_task
from glocal.files import replacing, write_text
from glocal.types import Views

HEADS = {"photos-gel": "GEL", "photos-protonet": "cosine prototypes"}
PROMISES = (0.05, 0.10)
SEED = 0
QUERIES = 8  # of each class: with 28 photos of it, more tasks say more than more queries
RESAMPLES = 2000
CIFAR_PICTURES = 40  # of each class: enough for the tasks, and minutes of encoding
SETTINGS = {
    "caltech-photos": {
        "5-way 1-shot": EpisodeSpec(5, 1, QUERIES, 5, QUERIES),
        "5-way 3-shot": EpisodeSpec(5, 3, QUERIES, 5, QUERIES),
        "5-way 5-shot": EpisodeSpec(5, 5, QUERIES, 5, QUERIES),
        "5-way 10-shot": EpisodeSpec(5, 10, QUERIES, 5, QUERIES),
        "20-way 5-shot": EpisodeSpec(20, 5, QUERIES, 5, QUERIES),
        "5-way, 1 to 10 shots": EpisodeSpec(5, (1, 10), QUERIES, 5, QUERIES),
    },
    "cifar-fs": {
        "5-way 1-shot": EpisodeSpec(5, 1, QUERIES, 5, QUERIES),
        "5-way 5-shot": EpisodeSpec(5, 5, QUERIES, 5, QUERIES),
        "5-way 10-shot": EpisodeSpec(5, 10, QUERIES, 5, QUERIES),
        "15-way 5-shot": EpisodeSpec(15, 5, QUERIES, 5, QUERIES),
    },
}


def rows_of(name: str, data: ClassDataset) -> np.ndarray[Any, np.dtype[np.int64]]:
    if name != "cifar-fs":
        return np.arange(len(data))
    first = [data.distinct(data.members(c))[:CIFAR_PICTURES] for c in range(len(data.classes))]
    return np.sort(np.concatenate(first))


def embed(model: Model, data: ClassDataset, rows: np.ndarray[Any, Any]) -> Views:
    """Views of the pictures ``rows``, at the place they have in the data set; only these rows may be asked for."""
    import torch

    bank, place = FeatureBank.build(model.backbone.on("cpu").eval(), data, wanted=rows, workers=1), np.zeros(len(data))
    place[rows] = np.arange(len(rows))
    with torch.inference_mode():
        parts = [model.method.eval().embed(bank(some)) for some in np.array_split(rows, 1 + len(rows) // 64)]
    local = [part.local for part in parts if part.local is not None]
    at = torch.from_numpy(place).long()
    return Views(torch.cat([part.vec for part in parts])[at], torch.cat(local)[at] if local else None)


def measure(model: Model, views: Views, draws: list[Draw], classes: int) -> dict[str, Any]:
    """Per class and promise: known photos, false unknowns, unknown photos, caught; and what the tasks were told."""
    scores = score_model_of(model.record)
    assert scores is not None, "the head carries no score model"
    counts = {name: np.zeros((len(PROMISES), classes)) for name in ("false", "caught")}
    seen = {"known": np.zeros(classes), "unknown": np.zeros(classes)}
    rates: list[list[float]] = [[] for _ in PROMISES]
    inside = np.zeros(len(PROMISES))
    warned, shifted, margins = 0, 0, []
    for draw in draws:
        task = score_task(model.method, views, draw)
        drawn = np.array(draw.drawn)
        known_class = drawn[task.label]
        way, unknown_way = len(task.shots), len(drawn) - len(task.shots)
        unknown_class = np.repeat(drawn[way:], len(task.unknown) // unknown_way)
        np.add.at(seen["known"], known_class, 1)
        np.add.at(seen["unknown"], unknown_class, 1)
        for p, promise in enumerate(PROMISES):
            found = scores.threshold(shots=task.shots, left_out=task.left_out, max_false_unknown=promise)
            false = task.score > found.value
            np.add.at(counts["false"][p], known_class, false)
            np.add.at(counts["caught"][p], unknown_class, task.unknown > found.value)
            rates[p].append(float(false.mean()))
            assert found.interval is not None
            assert found.slope is not None
            slack = 1.96 * np.sqrt(promise * (1 - promise) / len(false))  # the rate itself is a count of few photos
            inside[p] += found.interval[0] - slack <= false.mean() <= found.interval[1] + slack
            if promise == PROMISES[0]:
                warned += bool(found.warnings)
                shifted += any("outside the range" in warning for warning in found.warnings)
                both = np.concatenate([task.score, task.unknown])
                margins.append(((both - found.value) * found.slope, known_class, unknown_class))
    return {
        "known": seen["known"].tolist(),
        "unknown": seen["unknown"].tolist(),
        "false": counts["false"].tolist(),
        "caught": counts["caught"].tolist(),
        "rate_quantiles": [np.quantile(r, [0.025, 0.5, 0.975]).tolist() for r in rates],
        "inside_interval": (inside / len(draws)).tolist(),
        "warned": warned / len(draws),
        "warned_of_shift": shifted / len(draws),
        "matched": matched(margins, classes),
    }


def matched(margins: list[Any], classes: int) -> list[list[float]]:
    """Unknown photos caught by class, when all thresholds move together until exactly the promised share is false.

    This compares two heads at the same achieved rate, whatever each of them promised.
    """
    known = np.concatenate([m[: len(k)] for m, k, _ in margins])
    unknown, of = np.concatenate([m[len(k) :] for m, k, _ in margins]), np.concatenate([u for _, _, u in margins])
    found = []
    for promise in PROMISES:
        cut = np.quantile(known, 1 - promise)
        found.append(np.bincount(of[unknown > cut], minlength=classes).astype(float).tolist())
    return found


def share(part: Any, whole: Any, times: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Share of ``whole`` (classes,) over resampled classes: times (R, classes) -> (R,)."""
    return np.asarray((times @ np.asarray(part)) / np.maximum(times @ np.asarray(whole), 1e-12))


def resampled(classes: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(SEED)
    drawn = rng.multinomial(classes, np.full(classes, 1 / classes), size=RESAMPLES)
    return np.concatenate([np.ones((1, classes)), drawn])  # row 0: as measured


def interval(values: np.ndarray[Any, Any]) -> dict[str, float]:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return {"mean": float(values[0]), "low": float(low), "high": float(high)}


def summarise(found: dict[str, dict[str, Any]], classes: int) -> dict[str, Any]:
    """Of one setting: per head the achieved and caught shares, and the paired difference in unknowns caught."""
    times = resampled(classes)
    out: dict[str, Any] = {}
    at_rate = {}
    for head, counts in found.items():
        lines = []
        for p, promise in enumerate(PROMISES):
            at_rate[head, p] = share(counts["matched"][p], counts["unknown"], times)
            lines.append(
                {
                    "promised": promise,
                    "achieved": interval(share(counts["false"][p], counts["known"], times)),
                    "caught": interval(share(counts["caught"][p], counts["unknown"], times)),
                    "caught_at_promised_rate": interval(at_rate[head, p]),
                    "tasks_between": counts["rate_quantiles"][p],
                    "inside_stated_interval": counts["inside_interval"][p],
                }
            )
        out[head] = {"lines": lines, "warned": counts["warned"], "warned_of_shift": counts["warned_of_shift"]}
    first, second = HEADS
    out["more_caught_by_gel"] = [interval(at_rate[first, p] - at_rate[second, p]) for p in range(len(PROMISES))]
    return out


def run(work: Path, tasks: int) -> dict[str, Any]:
    models = {head: load_model(head).eval() for head in HEADS}
    results: dict[str, Any] = {}
    for name, settings in SETTINGS.items():
        data = open_dataset(name, "test")
        rows = rows_of(name, data)
        views: dict[str, Views] = {}
        for setting, spec in settings.items():
            found = {}
            for head, model in models.items():
                key = f"{name} {setting} {head} {identity(model)} {tasks} tasks".replace(",", "").replace(" ", "-")
                kept = work / f"{key}.json"
                if not kept.is_file():
                    if head not in views:
                        views[head] = embed(model, data, rows)
                    start = time.monotonic()
                    sampler = EpisodeSampler(data, spec, seed=SEED, rows=rows)
                    counts = measure(model, views[head], [sampler[i] for i in range(tasks)], len(data.classes))
                    write_text(kept, json.dumps(counts))
                    print(f"{key}: {time.monotonic() - start:.0f} s", flush=True)
                found[head] = json.loads(kept.read_text("utf-8"))
            results.setdefault(name, {})[setting] = summarise(found, len(data.classes))
    return results


def identity(model: Model) -> str:
    """Of weights and score model: what was measured with others is measured again."""
    parts = [model.record["sha256"], model.record["score_model"]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def percent(x: dict[str, float], sign: str = "") -> str:
    return f"{100 * x['mean']:{sign}.1f} [{100 * x['low']:{sign}.1f}, {100 * x['high']:{sign}.1f}]"


def markdown(results: dict[str, Any], tasks: int, command: str) -> str:
    lines = [
        "# Is the promise kept?",
        "",
        "Every task gets its threshold from its own support photos; promised is the share of known photos that may",
        "be called unknown. 95 % intervals by a bootstrap over classes, because the tasks reuse few photos. *Caught at",
        "the promised rate* moves all thresholds of a head together until exactly the promised share is false: it",
        "compares the two heads at the same achieved rate. None of these classes trained or chose anything.",
        "",
        f"```sh\n{command}\n```",
        "",
        f"{tasks} tasks per setting, seed {SEED}, {', '.join(HEADS)} as shipped. All numbers in percent.",
    ]
    titles = {
        "caltech-photos": "Caltech photos, 25 test classes",
        "cifar-fs": "CIFAR-FS, 20 test classes: 32-pixel pictures, a shift in domain",
    }
    for name, settings in results.items():
        lines += ["", f"## {titles[name]}", ""]
        lines += [
            "| setting | head | promised | achieved | 95 % of tasks | caught | caught at promised rate | GEL more |",
            "|---|---|--:|--:|--:|--:|--:|--:|",
        ]
        for setting, found in settings.items():
            for p, promise in enumerate(PROMISES):
                for head, title in HEADS.items():
                    line, first = found[head]["lines"][p], head == next(iter(HEADS))
                    low, _, high = line["tasks_between"]
                    more = percent(found["more_caught_by_gel"][p], "+") if first else ""
                    lines.append(
                        f"| {setting} | {title} | {100 * promise:g} | {percent(line['achieved'])} | "
                        f"{100 * low:.1f} to {100 * high:.1f} | {percent(line['caught'])} | "
                        f"{percent(line['caught_at_promised_rate'])} | {more} |"
                    )
        lines += [
            "",
            "| setting | tasks warned | of a support unlike what the head knows | rate in the stated interval |",
        ]
        lines += ["|---|--:|--:|--:|"]
        for setting, found in settings.items():
            gel = found[next(iter(HEADS))]
            inside = " and ".join(f"{100 * line['inside_stated_interval']:.0f}" for line in gel["lines"])
            lines.append(f"| {setting} | {100 * gel['warned']:.0f} | {100 * gel['warned_of_shift']:.0f} | {inside} |")
        lines += ["", "(GEL; the last column at 5 and at 10 percent, allowing for the photos counted in one task.)"]
    return "\n".join([*lines, "", "![Promised against achieved](promise.svg)", ""])


def plot(results: dict[str, Any], out: Path) -> None:
    from matplotlib.figure import Figure

    from glocal.report.plots import BLUE, GRID, INK, SOFT, VERMILLION

    figure = Figure(figsize=(10.5, 5.6), layout="constrained")
    axes = figure.subplots(1, 2, width_ratios=[6, 4], sharey=True)
    for ax, (name, settings) in zip(axes, results.items(), strict=True):
        ax.set_title({"caltech-photos": "Caltech photos", "cifar-fs": "CIFAR-FS (shift in domain)"}[name], color=INK)
        for promise, style in zip(PROMISES, ("-", "--"), strict=True):
            ax.axhline(100 * promise, color=SOFT, linestyle=style, linewidth=1.2)
        for h, (head, color, marker) in enumerate(zip(HEADS, (BLUE, VERMILLION), ("o", "s"), strict=True)):
            for p, promise in enumerate(PROMISES):
                at = np.arange(len(settings)) + (-0.24, 0.08)[p] + 0.14 * h
                lines = [found[head]["lines"][p]["achieved"] for found in settings.values()]
                mean = 100 * np.array([line["mean"] for line in lines])
                low, high = (100 * np.array([line[end] for line in lines]) for end in ("low", "high"))
                label = f"{HEADS[head]}, promised {100 * promise:g} %"
                fill = color if p == 0 else "white"
                bars = [mean - low, high - mean]
                ax.errorbar(at, mean, bars, fmt=marker, color=color, mfc=fill, ms=6, capsize=2.5, label=label)
        ax.set_xticks(range(len(settings)), [s.replace(", ", ",\n").replace("way ", "way\n") for s in settings])
        ax.grid(axis="y", color=GRID)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("known photos called unknown, % (95 % over classes)")
    axes[0].set_ylim(0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    for ending in ("png", "svg"):
        with replacing(out / f"promise.{ending}") as partial:
            figure.savefig(partial, format=ending, dpi=130, metadata={"Date": None} if ending == "svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    home = Path(tempfile.gettempdir()) / "glocal-promise"
    parser.add_argument("--out", type=Path, default=home)
    parser.add_argument("--work", type=Path, default=home)
    parser.add_argument("--tasks", type=int, default=1000)
    args = parser.parse_args()
    if not (Path(os.environ.get("GLOCAL_DATA", "")) / "caltech-photos").is_dir():
        print("skipped: GLOCAL_DATA names no folder with caltech-photos and cifar-fs")
        return
    results = run(args.work, args.tasks)
    command = f"python benchmarks/promise.py --tasks {args.tasks}"
    record = {"command": command, "seed": SEED, "tasks": args.tasks, "heads": list(HEADS), "results": results}
    write_text(args.out / "promise.json", json.dumps(record, indent=1))
    write_text(args.out / "promise.md", markdown(results, args.tasks, command))
    plot(results, args.out)
    print(f"written: {args.out / 'promise.md'}")


if __name__ == "__main__":
    main()
