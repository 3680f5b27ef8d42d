"""Any encoder under the heads of the recognizer, over thirteen domains: rates, accuracy and time, as one table.

    GLOCAL_DATA=DIR python benchmarks/encoders.py fast better dino.encoder [--tasks 60] [--work DIR] [--out FILE]

Encoders are fast, better and what ``glocal encoder`` makes.  18 photos of each class are encoded once and kept in
--work; of Caltech every second class.  Nothing is fitted to an encoder.  The constants of the threshold were fitted
with the encoder fast over these domains, and to no other encoder.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tasks import TableRidge, counted, numbered, summary, tasks, write_table

from glocal.common.files import write_text
from glocal.recognizer.encoders.builtin import ENCODERS
from glocal.recognizer.encoders.encoder import Encoder
from glocal.recognizer.features import Array, Features, join
from glocal.recognizer.heads.prototypes import Prototypes
from glocal.recognizer.heads.ridge import WHITEN, Ridge, cells_of
from glocal.recognizer.model import build_model
from glocal.recognizer.photos.sources import Picture, as_source, take

PHOTOS, BATCH = 18, 8
KINDS = {"5 x 2": 3.0, "5 x 5": 2.0, "5 x 10": 2.0}  # and the points around the target rate that are aimed at
CALTECH = "caltech"


def folders() -> dict[str, list[Path]]:
    """The classes of each domain."""
    data = Path(os.environ["GLOCAL_DATA"])
    roots = {CALTECH: data / "caltech-photos"} | {
        each.name: each for each in sorted((data / "photo-domains").iterdir())
    }
    classes = {name: sorted(each for each in root.iterdir() if each.is_dir()) for name, root in roots.items()}
    return classes | {CALTECH: classes[CALTECH][::2]}


def encoded(names: Sequence[str], work: Path) -> Iterator[tuple[str, Array, Array, Array]]:
    """By domain: its name, labels (P,), vectors (P, D) and matches of cells (P, P).

    The kernels of several encoders are added in equal parts, as those of the members of one."""
    for domain, classes in folders().items():
        every = [_domain(name, domain, classes, work) for name in names]
        scale = np.float32(len(every) ** -0.5)
        vec = np.concatenate([scale * each["vec"] for each in every], axis=1)
        yield domain, every[0]["label"], vec, np.mean([each["matches"] for each in every], axis=0)


def whiten(names: Sequence[str]) -> float:
    """The encoders that ship bring their whitening."""
    return 0.0 if set(names) <= ENCODERS.keys() else WHITEN


def cost(name: str, work: Path) -> tuple[float, float]:
    """Milliseconds of processor time per photo, and megabytes of the graphs."""
    milliseconds, megabytes = map(float, (work / f"{Path(name).stem}.txt").read_text("utf-8").split())
    return milliseconds, megabytes


def _domain(name: str, domain: str, classes: Sequence[Path], work: Path) -> dict[str, Array]:
    stem = Path(name).stem
    kept = work / f"{stem}-{domain}.npz"
    if not kept.exists():
        encoder = build_model(name, threads=1).encoder
        files = [(c, file) for c, each in enumerate(classes) for file in sorted(each.iterdir())[:PHOTOS]]
        features, seconds = _encode(encoder, [file for _, file in files])
        megabytes = sum(len(graph.data) for graph in encoder.graphs()) / 1e6
        work.mkdir(parents=True, exist_ok=True)
        write_text(work / f"{stem}.txt", f"{1000 * seconds / len(files):.1f} {megabytes:.1f}\n")
        cells = cells_of(features)
        matches = Ridge().match(cells, cells, (len(files),) * 2)
        np.savez(kept, label=np.array([c for c, _ in files]), vec=features.vec, matches=matches)
    with np.load(kept) as arrays:
        return dict(arrays)


def _encode(encoder: Encoder, files: Sequence[Path]) -> tuple[Features, float]:
    parts, seconds = [], 0.0
    for start in range(0, len(files), BATCH):
        pictures = [take(as_source(file), encoder.preprocess) for file in files[start : start + BATCH]]
        images = np.stack([each.pixels for each in pictures if isinstance(each, Picture)])
        begin = time.process_time()
        parts.append(encoder(images))
        seconds += time.process_time() - begin
    return join(parts), seconds


def measured(names: Sequence[str], work: Path, n: int) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for domain, label, vec, matches in encoded(names, work):
        for kind in KINDS:
            for head, views in (
                (TableRidge(matches, whiten=whiten(names)), numbered(vec)),
                (Prototypes(), Features(vec)),
            ):
                rows = [counted(head, views, label, task) for task in tasks(domain, label, kind, n)]
                values = {number: [row[number] for row in rows] for number in rows[0]}
                found.setdefault((kind, head.name), {})[domain] = values
    costs = [cost(name, work) for name in names]
    about = {
        "encoder": " + ".join(Path(name).stem for name in names),
        "ms per photo": float(sum(each for each, _ in costs)),
        "MB": float(sum(each for _, each in costs)),
    }
    table = []
    for (kind, head_name), parts in found.items():
        rates = {domain: float(np.mean(each["false"], axis=0)[0]) for domain, each in parts.items()}
        off = {domain: abs(rate - 5) for domain, rate in rates.items()}
        worst = max(off, key=lambda domain: off[domain])
        row = {**about, "task": kind, "head": head_name, **summary(list(parts.values()))}
        row[f"domains within {KINDS['5 x 2']:g} (2 photos) or {KINDS['5 x 5']:g}"] = sum(
            each <= KINDS[kind] for each in off.values()
        )
        table.append({**row, "furthest domain": worst, "its false unknowns %": rates[worst]})
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoders", nargs="+", help="A+B for two whose kernels are added")
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--work", type=Path, default=Path("encoders-work"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/data/encoders.csv"))
    given = parser.parse_args()
    rows = []
    for names in given.encoders:
        rows += measured(names.split("+"), given.work, given.tasks)
        write_table(given.out, rows)
        print(names, flush=True)


if __name__ == "__main__":
    main()
