"""``PAIRS`` and ``ALIKE`` of ``limits``: what a support of few photos cannot say of itself.

    GLOCAL_DATA=DIR python benchmarks/fit_few_photos.py [--work DIR]        # prints both, by domain and without each

``PAIRS``: with two photos per class, how far left-out photos score above new ones, twice that, in what they score above
enrolled ones; the mean over domains and two heads (the recognizer's and cosine prototypes).  ``ALIKE``: of a few values
the one with which promises of 2 and 5 % come out nearest, where they are less than one score: two classes of three and
of five photos, and five of three.  There ``PAIRS`` has no say.  The tasks are not those of promise.py.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from domains import Domain, domains, head_without

from glocal.common.files import write_text
from glocal.recognizer.calibration import limits
from glocal.recognizer.calibration.decision import Decision, Promise, compute_threshold
from glocal.recognizer.calibration.leave_one_out import Measured, enroll, measure
from glocal.recognizer.features import Features
from glocal.recognizer.heads.head import Head, Scores

TASKS, QUERIES, SEED = 40, 8, 11
HEADS = ("ridge", "protonet")
SHAPES = ((2, 3), (2, 5), (5, 3))  # classes, photos
SHARES = (0.02, 0.05)
GRID = (1.0, 1.25, 1.5, 2.0, 3.0)
LEAST = 0.1  # of the promised share: a domain with less counts as having this much


def gather(every: dict[str, Domain], kept: Path) -> dict[str, Any]:
    """By domain: ``pairs`` of each head, and ``rates`` of the recognizer's by value of ALIKE, shape and share."""
    if not kept.exists():
        found = {}
        for name, domain in every.items():
            pairs = [_pairs(*head_without(every, name, kind), domain) for kind in HEADS]
            found[name] = {"pairs": pairs, "rates": _rates(*head_without(every, name), domain)}
        write_text(kept, json.dumps(found))
    read: dict[str, Any] = json.loads(kept.read_text("utf-8"))
    return read


def fit(found: dict[str, Any], without: str | None = None) -> tuple[float, float]:
    """PAIRS and ALIKE, from all domains or all but one."""
    rest = [each for name, each in found.items() if name != without]
    rates = np.maximum([each["rates"] for each in rest], LEAST * np.array(SHARES))  # (domains, GRID, SHAPES, SHARES)
    off = np.log(rates / SHARES).mean(axis=0)
    return float(np.mean([each["pairs"] for each in rest])), GRID[int(np.abs(off).mean(axis=(1, 2)).argmin())]


def _tasks(head: Head, views: Features, domain: Domain, way: int, shots: int) -> list[tuple[Measured, Scores]]:
    """What the support says of itself, and what new photos of its classes score."""
    rng, found = np.random.default_rng((SEED, way, shots)), []
    for _ in range(TASKS):
        classes = rng.permutation(domain.classes)[: min(way, domain.classes // 2)]
        rows = [rng.permutation(np.flatnonzero(domain.label == c))[: shots + QUERIES] for c in classes]
        support, label = np.concatenate([each[:shots] for each in rows]), np.repeat(np.arange(len(classes)), shots)
        known = np.concatenate([each[shots:] for each in rows])
        state = enroll(head, views.rows(support), label)
        found.append((measure(head, views.rows(support), label), head.compare(state, views.rows(known))))
    return found


def _pairs(head: Head, views_of: Any, domain: Domain) -> float:
    left, known, own = [], [], []
    for measured, compared in _tasks(head, views_of(domain), domain, 5, 2):
        left.append(np.mean([each.score for each in measured.left_out]))
        known.append(compared.open_score.mean())
        own.append(measured.own)
    return float(2 * np.mean(np.subtract(left, known)) / np.mean(np.subtract(left, own)))


def _rates(head: Head, views_of: Any, domain: Domain) -> list[Any]:
    """(GRID, SHAPES, SHARES) of known photos called unknown."""
    shaped, usual = [_tasks(head, views_of(domain), domain, *shape) for shape in SHAPES], limits.ALIKE
    found = []
    for limits.ALIKE in GRID:  # what the limits read
        found.append(
            [[_called(tasks, shape[1], share) for share in SHARES] for shape, tasks in zip(SHAPES, shaped, strict=True)]
        )
    limits.ALIKE = usual
    return found


def _called(tasks: list[tuple[Measured, Scores]], shots: int, share: float) -> float:
    rates = []
    for measured, compared in tasks:
        way = compared.logits.shape[1]
        decision = Decision(compute_threshold(Promise(share), [shots] * way, measured), measured)
        rates.append((compared.open_score > decision.limits(compared.logits.argmax(axis=1))).mean())
    return float(np.mean(rates))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("promise-work"))
    given = parser.parse_args()
    found = gather(domains("fast", given.work), given.work / "fast-few-photos.json")
    print("| domain | PAIRS, " + " | ".join(HEADS) + " | without it: PAIRS | ALIKE |\n|---|---|---|---|---|")
    for name, each in found.items():
        pairs, alike = fit(found, name)
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in each["pairs"]) + f" | {pairs:.3f} | {alike} |")
    pairs, alike = fit(found)
    print(f"all: PAIRS = {pairs:.3f}, ALIKE = {alike}")
    mean = np.mean([each["rates"] for each in found.values()], axis=0)
    for value, rates in zip(GRID, mean, strict=True):
        cells = [
            f"{way} x {k}: " + " / ".join(f"{100 * r:.1f}" for r in row)
            for (way, k), row in zip(SHAPES, rates, strict=True)
        ]
        print(f"ALIKE {value}: promises of 2 / 5 %, " + "; ".join(cells))


if __name__ == "__main__":
    main()
