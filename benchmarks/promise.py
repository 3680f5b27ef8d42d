"""Is the promise kept?  Promised against achieved false-unknown rates on classes nobody has trained or chosen with.

    GLOCAL_DATA=DIR python benchmarks/promise.py --out docs/results [--tasks 1000] [--work DIR] [--only WORDS]

For each setting random tasks are drawn (seed 0), every task gets its threshold from its own support photos alone, and
the rest is counted: known photos called unknown, and unknown photos caught.  Heads: photos-gel and, as the plain
baseline, photos-protonet (cosine prototypes on the same features), each with the score model it ships with.  The second
part sends CIFAR-FS pictures of 32 pixels through the same heads: a shift in domain.

Tasks reuse few photos, so intervals come from a bootstrap over classes.  Finished settings are kept in --work and not
measured again; --only measures those whose name holds the words and writes no page.  Writes promise.json, and by
promise_page.py promise.md, promise.png and promise.svg; about an hour on one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from promise_page import HEADS, PROMISES, write_page

from glocal.data.dataset import ClassDataset
from glocal.data.episodes import Draw, EpisodeSampler, EpisodeSpec
from glocal.data.features import FeatureBank
from glocal.data.registry import open_dataset
from glocal.engine.checkpoint import Model, load_model
from glocal.recognizer.score_fit import score_task
from glocal.types import Views
from glocal_runtime.files import write_text
from glocal_runtime.score_model import ScoreModel

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
LEVELS = (0.01, 0.02, 0.05, 0.10, 0.20, 0.30)  # promises of the reliability plot
RATES = np.geomspace(0.005, 0.5, 161)  # achieved rates between which heads are compared at the same rate
SEED = 0
QUERIES = 8  # of each class: with 28 photos of it, more tasks say more than more queries
RESAMPLES = 2000
CIFAR_PICTURES = 40  # of each class: enough for the tasks, and minutes of encoding
KINDS = {  # of warnings, by what they say
    "too few photos": "too few photos",
    "outside the range": "support scores outside the range",
    "look more alike": "classes more alike than any the head knows",
    "it is carried on": "beyond the sizes of the score model",
}
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
    bank, place = FeatureBank.build(model.backbone.on("cpu").eval(), data, wanted=rows, workers=1), np.zeros(len(data))
    place[rows] = np.arange(len(rows))
    with torch.inference_mode():
        parts = [model.method.eval().embed(bank(some)) for some in np.array_split(rows, 1 + len(rows) // 64)]
    local = [part.local for part in parts if part.local is not None]
    at = torch.from_numpy(place).long()
    return Views(torch.cat([part.vec for part in parts])[at], torch.cat(local)[at] if local else None)


def measure(model: Model, views: Views, draws: list[Draw], classes: int) -> dict[str, Any]:
    """Counts by class, so that classes can be resampled; and what the tasks were told."""
    scores = ScoreModel.from_json(model.record["score_model"])
    counts = {name: np.zeros((len(LEVELS), classes)) for name in ("false", "caught")}
    seen = {name: np.zeros(classes) for name in ("known", "unknown", "right")}
    above, pairs = np.zeros((classes, classes)), np.zeros((classes, classes))  # [known class, unknown class]
    rates: list[list[float]] = [[] for _ in LEVELS]
    inside, told, examples, warned, margins = np.zeros(len(LEVELS)), dict.fromkeys(KINDS, 0), {}, 0, []
    for draw in draws:
        task = score_task(model.method, views, draw)
        drawn, way = np.array(draw.drawn), len(task.shots)
        known_class = drawn[task.label]
        unknown_class = np.repeat(drawn[way:], len(task.unknown) // (len(drawn) - way))
        np.add.at(seen["known"], known_class, 1)
        np.add.at(seen["unknown"], unknown_class, 1)
        np.add.at(seen["right"], known_class, task.logits.argmax(axis=1) == task.label)
        order = (task.unknown[None] > task.score[:, None]) + 0.5 * (task.unknown[None] == task.score[:, None])
        at = (known_class[:, None], unknown_class[None])
        np.add.at(above, at, order)
        np.add.at(pairs, at, 1)
        for p, promise in enumerate(LEVELS):
            found = scores.threshold(
                shots=task.shots, left_out=task.left_out, max_false_unknown=promise, strange=task.strange
            )
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
                for words in KINDS:
                    some = [warning for warning in found.warnings if words in warning]
                    told[words] += bool(some)
                    examples |= {words: some[0]} if some and words not in examples else {}
                scale = found.slope
                margins.append(((task.score - found.value) * scale, (task.unknown - found.value) * scale))
                margins[-1] += (known_class, unknown_class)
    return {
        **{name: values.tolist() for name, values in (seen | counts).items()},
        "above": above.tolist(),
        "pairs": pairs.tolist(),
        "rate_quantiles": [np.quantile(r, [0.025, 0.5, 0.975]).tolist() for r in rates],
        "inside_interval": (inside / len(draws)).tolist(),
        "warned": warned / len(draws),
        "told": {KINDS[words]: n / len(draws) for words, n in told.items()},
        "examples": {KINDS[words]: text for words, text in examples.items()},
        "moved": moved(margins, classes),
    }


def moved(margins: list[Any], classes: int) -> dict[str, list[list[float]]]:
    """False and caught by class, (RATES, classes), when all thresholds of a head move together to each of the rates.

    This compares two heads at the same achieved rate, whatever each of them promised.
    """
    known, unknown, known_class, unknown_class = (np.concatenate(part) for part in zip(*margins, strict=True))
    cuts = np.quantile(known, 1 - RATES)
    false = [np.bincount(known_class[known > cut], minlength=classes).tolist() for cut in cuts]
    caught = [np.bincount(unknown_class[unknown > cut], minlength=classes).tolist() for cut in cuts]
    return {"false": false, "caught": caught}


def share(part: Any, whole: Any, times: Array) -> Array:
    """Share of ``whole`` (classes,) over resampled classes: times (R, classes) -> (R,)."""
    return np.asarray((times @ np.asarray(part)) / np.maximum(times @ np.asarray(whole), 1e-12))


def at_rate(counts: dict[str, Any], promise: float, times: Array) -> Array:
    """(R,) unknown photos caught where exactly that share of the known photos of the resampled classes is false."""
    false = (times @ np.array(counts["moved"]["false"]).T) / (times @ np.array(counts["known"]))[:, None]
    caught = (times @ np.array(counts["moved"]["caught"]).T) / (times @ np.array(counts["unknown"]))[:, None]
    return np.array([np.interp(promise, f, c) for f, c in zip(false, caught, strict=True)])


def auroc(counts: dict[str, Any], times: Array) -> Array:
    """(R,) mean over tasks, from pairs of a known and an unknown class, each as often as both were drawn."""
    above, pairs = np.array(counts["above"]), np.array(counts["pairs"])
    return np.asarray(((times @ above) * times).sum(axis=1) / np.maximum(((times @ pairs) * times).sum(axis=1), 1e-12))


def resampled(classes: int) -> Array:
    rng = np.random.default_rng(SEED)
    drawn = rng.multinomial(classes, np.full(classes, 1 / classes), size=RESAMPLES)
    return np.concatenate([np.ones((1, classes)), drawn])  # row 0: as measured


def interval(values: Array) -> dict[str, float]:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return {"mean": float(values[0]), "low": float(low), "high": float(high)}


def summarise(found: dict[str, dict[str, Any]], classes: int) -> dict[str, Any]:
    """Of one setting: the shares of each head, and paired differences GEL - prototypes on the same tasks."""
    times, out = resampled(classes), {}
    paired: dict[str, list[Array]] = {}
    for head, counts in found.items():
        lines = []
        for p, promise in enumerate(LEVELS):
            same_rate = at_rate(counts, promise, times)
            paired.setdefault(f"caught at {promise:g}", []).append(same_rate)
            lines.append(
                {
                    "promised": promise,
                    "achieved": interval(share(counts["false"][p], counts["known"], times)),
                    "caught": interval(share(counts["caught"][p], counts["unknown"], times)),
                    "caught_at_promised_rate": interval(same_rate),
                    "tasks_between": counts["rate_quantiles"][p],
                    "inside_stated_interval": counts["inside_interval"][p],
                }
            )
        quality = {"acc": share(counts["right"], counts["known"], times), "auroc": auroc(counts, times)}
        for name, values in quality.items():
            paired.setdefault(name, []).append(values)
        told = {name: counts[name] for name in ("warned", "told", "examples")}
        out[head] = {"lines": lines, **{name: interval(values) for name, values in quality.items()}, **told}
    out["gel_minus_prototypes"] = {name: interval(gel - plain) for name, (gel, plain) in paired.items()}
    return out


def run(work: Path, tasks: int, only: str) -> dict[str, Any]:
    models = {head: load_model(head).eval() for head in HEADS}
    results: dict[str, Any] = {}
    for name, settings in SETTINGS.items():
        data = open_dataset(name, "test")
        rows = rows_of(name, data)
        views: dict[str, Views] = {}
        for setting, spec in settings.items():
            if only not in f"{name} {setting}":
                continue
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
    """Of weights, score model and what is counted: what was measured with others is measured again."""
    parts = [model.record["sha256"], model.record["score_model"], LEVELS, RATES.tolist()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    home = Path(tempfile.gettempdir()) / "glocal-promise"
    parser.add_argument("--out", type=Path, default=home)
    parser.add_argument("--work", type=Path, default=home)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    if not (Path(os.environ.get("GLOCAL_DATA", "")) / "caltech-photos").is_dir():
        print("skipped: GLOCAL_DATA names no folder with caltech-photos and cifar-fs")
        return
    results = run(args.work, args.tasks, args.only)
    if not args.only:
        command = f"GLOCAL_DATA=DIR python benchmarks/promise.py --out docs/results --tasks {args.tasks}"
        record = {"command": command, "seed": SEED, "tasks": args.tasks, "results": results}
        write_text(args.out / "promise.json", json.dumps(record, indent=1) + "\n")
        write_page(record, args.out)


if __name__ == "__main__":
    main()
