"""What the better encoder adds, and what it costs: both on the same tasks, and on the same photos one after the other.

    GLOCAL_DATA=DIR python benchmarks/encoders.py [--tasks 60] [--work DIR] [--per-class 12]

Whitening without the domain that is measured; ACC, AUROC and what is caught at a true 5 %, 1 and 5 photos per class.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import promise
import torch
from domains import ENCODERS, domains, folders, head_without
from promise import auroc, score, tasks

from glocal.recognizer.recognizer import find_model

PHOTOS = 64  # encoded for the time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--work", type=Path, default=Path("promise-work"))
    parser.add_argument("--per-class", type=int, default=12)
    given = parser.parse_args()
    promise.QUERIES = min(promise.QUERIES, given.per_class - 5)
    found: dict[tuple[str, str], list[list[float]]] = {}
    for encoder in ENCODERS:
        every = domains(encoder, given.work, without=["caltech"], per_class=given.per_class)
        for name, domain in every.items():
            head, views_of = head_without(every, name)
            views = views_of(domain)
            for kind in ("1", "5"):
                rows = []
                for task in tasks(domain, kind, given.tasks):
                    _, known, unknown = score(head, views, task)
                    right = float((known.logits.argmax(axis=1) == task.truth).mean())
                    caught = float((unknown.open_score > np.quantile(known.open_score, 0.95)).mean())
                    rows.append([right, auroc(known.open_score, unknown.open_score), caught])
                found.setdefault((encoder, kind), []).append(np.mean(rows, axis=0).tolist())
    for kind in ("1", "5"):
        fast, better = (100 * np.array(found[encoder, kind]) for encoder in ENCODERS)
        print(f"{kind} photos: fast {fast.mean(axis=0).round(1)}, better {(better - fast).mean(axis=0).round(1)} more")
        print("   AUROC by domain:", (better - fast)[:, 1].round(1).tolist())
    _time(next(each for name, each in folders(Path(os.environ["GLOCAL_DATA"])).items() if name != "caltech"))


def _time(folder: Path) -> None:
    from glocal.recognizer.encoder import Encoder

    torch.set_num_threads(1)
    files = [file for each in sorted(folder.iterdir()) for file in sorted(each.iterdir())][:PHOTOS]
    seconds = {}
    for encoder in (*ENCODERS, *ENCODERS):  # twice: the first time warms up
        eye = Encoder(find_model(f"photos-{encoder}", device="cpu"), workers=1)
        start = time.process_time()
        eye.embed(files)
        seconds[encoder] = time.process_time() - start
    fast, better = (seconds[encoder] / len(files) for encoder in ENCODERS)
    print(f"CPU per photo: fast {1e3 * fast:.0f} ms, better {1e3 * better:.0f} ms, {better / fast:.2f} times")


if __name__ == "__main__":
    main()
