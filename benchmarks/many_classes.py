"""A recognizer of many classes: how enrolling, saving, loading, predicting and memory grow from 100 to 10,000.

    python benchmarks/many_classes.py [--models fast] [--sizes 100,1000,10000] [--plot FILE]

Each size runs in a process of its own, with at most ``--limit`` seconds; what does not come to its end is said so.  The
classes are noisy copies of ten real ones of five photos (or of noise, where there are no photos below GLOCAL_DATA): the
time of what is done with views does not depend on what they show.  Looking at the photos themselves is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from photo_sets import groups, photos

from glocal.common.memory import keep_freed_memory
from glocal.recognizer import Recognizer
from glocal.recognizer.calibration.leave_one_out import Trials, leave_one_out
from glocal.recognizer.diagnosis.advice import advice
from glocal.recognizer.enrolled import Enrolled
from glocal.recognizer.features import Features
from glocal.recognizer.support import Bank, Support

BATCH = 32


def say(**found: float) -> None:
    status = Path("/proc/self/status").read_text().splitlines()  # getrusage counts what the parent held at the fork
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    print(json.dumps(found | {"peak MiB": peak >> 10}), flush=True)


def timed(name: str, run: Callable[[], Any], per: int = 1) -> Any:
    start = time.perf_counter(), time.process_time()
    found = run()
    say(**{name: (time.perf_counter() - start[0]) / per, f"{name} CPU": (time.process_time() - start[1]) / per})
    return found


def grow(few: Recognizer, n: int) -> Support:
    rng = np.random.default_rng(0)
    banks = list(few.contents.support.classes.values())
    return Support.of({f"class {i}": _moved(banks[i % len(banks)], i, rng) for i in range(n)})


def _moved(bank: Bank, i: int, rng: np.random.Generator) -> Bank:
    """A noisy copy: another class for the time that it takes."""
    photos = tuple(replace(photo, digest=f"{i} {photo.digest}") for photo in bank.photos)
    vec = bank.features.vec
    noise = rng.standard_normal(vec.shape).astype(vec.dtype)
    local = tuple(np.roll(each, i, axis=1) for each in bank.features.local)
    return Bank(photos, Features(vec + vec.std() * noise, local), np.roll(bank.signature, i, axis=1))


def one_size(file: Path, n: int) -> None:
    few = Recognizer.load(file, device="cpu")
    support = grow(few, n)
    model = few.contents.model
    query = next(iter(support.classes.values())).features
    query = type(query)(
        np.repeat(query.vec, 7, axis=0)[:BATCH],
        tuple(np.repeat(each, 7, axis=0)[:BATCH] for each in query.local),
    )
    say(start=0.0)
    enrolled = timed("enroll", lambda: Enrolled(model, support))
    timed("compare, per photo", lambda: enrolled.compare(query), BATCH)
    ready = Recognizer(few.contents, few.embedder, enrolled)
    timed("leave one out", lambda: leave_one_out(Trials(model.head, support.bank.features, support.class_of)))
    contents = timed("settle", lambda: enrolled.settled(few.contents))
    ready = Recognizer(contents, few.embedder, enrolled)
    timed("decide, per photo", lambda: ready.decide(query), BATCH)
    timed("advice", lambda: advice(support, contents.decision))
    large = file.with_name(f"large-{n}.glocal")
    timed("save", lambda: ready.save(large))
    timed("load", lambda: Recognizer.load(large, device="cpu"))
    say(**{"file MiB": large.stat().st_size >> 20})
    large.unlink()


def measured(file: Path, n: int, limit: float) -> dict[str, float]:
    command = [sys.executable, __file__, "--size", str(n), "--file", str(file)]
    found: dict[str, float] = {}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        text, found["ended"] = done.stdout, float(done.returncode == 0)
        if done.returncode:
            print(done.stderr.strip().splitlines()[-1:], flush=True)
    except subprocess.TimeoutExpired as stopped:
        text, found["ended"] = (stopped.stdout or b"").decode(), 0.0
    for line in text.splitlines():
        found |= json.loads(line)
    return found


def plot(tables: dict[str, dict[int, dict[str, float]]], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    shown = (
        (("enroll CPU", "settle CPU"), "enroll: CPU seconds, photos not counted"),
        (("decide, per photo CPU",), "predict: CPU s a photo"),
        (("peak MiB",), "peak memory, MiB"),
    )
    for axis, (names, title) in zip(axes, shown, strict=True):
        for model, table in tables.items():
            points = [(n, sum(row[name] for name in names)) for n, row in table.items() if row.keys() >= set(names)]
            axis.loglog(*zip(*points, strict=True), marker="o", label=model)
        axis.set(title=title, xlabel="classes of 5 photos")
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="fast")
    parser.add_argument("--sizes", default="100,1000,10000")
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    keep_freed_memory()
    if asked.size:
        one_size(asked.file, asked.size)
        return
    data = Path(os.environ["GLOCAL_DATA"]) / "caltech-photos" if "GLOCAL_DATA" in os.environ else None
    tables: dict[str, dict[int, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for model in asked.models.split(","):
            file = Path(scratch) / f"{model}.glocal"
            some = list(groups(photos(data, Path(scratch), 50)))
            Recognizer.enroll({f"{i}": each for i, each in enumerate(some)}, model=model, device="cpu").save(file)
            tables[model] = {}
            for n in map(int, asked.sizes.split(",")):
                row = tables[model][n] = measured(file, n, asked.limit)
                print(f"{model}, {n} classes of 5, load {os.getloadavg()[0]:.1f}", flush=True)
                for name, value in row.items():
                    if not name.endswith(" CPU") and name not in ("start", "ended"):
                        used = f"   CPU {row[f'{name} CPU']:.4g}" if f"{name} CPU" in row else ""
                        print(f"  {name:<20} {value:10.4g}{used}", flush=True)
                if not row["ended"]:
                    print(f"  stopped after {asked.limit:.0f} s, or failed")
    if asked.plot:
        plot(tables, asked.plot)


if __name__ == "__main__":
    main()
