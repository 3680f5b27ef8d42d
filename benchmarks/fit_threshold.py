"""The constant ``tail`` of ``glocal.recognizer.calibration.threshold``: how far beyond the mean a target rate lies.

    GLOCAL_DATA=DIR python benchmarks/fit_threshold.py [--work DIR]        # prints the factor, without each domain

Of a few factors on ``tail`` the one between which false unknowns meet their targets in the geometric mean over tasks of
several shapes.  The shape of the rule and its other constants were chosen once, over all domains and these shapes
(docs/results/data/threshold-tried.csv).  The tasks are not those of promise.py.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from domains import Domain, domains, head_without

from glocal.common.files import write_text
from glocal.recognizer.calibration import threshold as module
from glocal.recognizer.calibration.leave_one_out import Measured, measure
from glocal.recognizer.calibration.threshold import Constants, compute_threshold
from glocal.recognizer.decision import Promise
from glocal.recognizer.heads.head import Scores

TASKS, QUERIES, SEED = 40, 8, 11
SHAPES = ((2, 3), (2, 5), (5, 2), (5, 3), (5, 5), (5, 10), (9, 5))  # classes, photos
SHARES = (0.02, 0.05, 0.1)
GRID = (0.85, 0.95, 1.0, 1.05, 1.15)
LEAST = 0.1  # of the target rate: a domain with less counts as having this much


def with_factor(factor: float, constants: Constants = Constants()) -> Constants:  # noqa: B008
    linear, square = constants.tail
    return constants._replace(tail=(factor * linear, factor * square))


def gather(every: dict[str, Domain], kept: Path) -> dict[str, Any]:
    """By domain: false unknowns by factor, shape and share."""
    if not kept.exists():
        found = {name: _rates(*head_without(every, name), domain) for name, domain in every.items()}
        write_text(kept, json.dumps(found))
    read: dict[str, Any] = json.loads(kept.read_text("utf-8"))
    return read


def fit(found: dict[str, Any], without: str | None = None) -> float:
    """The factor, from all domains or all but one."""
    rates = np.array([each for name, each in found.items() if name != without])  # (domains, GRID, SHAPES, SHARES)
    off = np.log(np.maximum(rates.mean(axis=0), LEAST * np.array(SHARES)) / SHARES).mean(axis=(1, 2))
    return float(np.interp(0, -off, GRID))  # a larger factor leaves fewer false unknowns


def _rates(head: Any, views_of: Any, domain: Domain) -> list[Any]:
    shaped = [_tasks(head, views_of(domain), domain, *shape) for shape in SHAPES]
    usual, found = module.FITTED, []
    for factor in GRID:
        module.FITTED = with_factor(factor, usual)
        found.append([[_false(tasks, share) for share in SHARES] for tasks in shaped])
    module.FITTED = usual
    return found


def _tasks(head: Any, views: Any, domain: Domain, way: int, shots: int) -> list[tuple[Measured, Scores]]:
    """What the support says of itself, and what new photos of its classes score."""
    rng, found = np.random.default_rng((SEED, way, shots)), []
    for _ in range(TASKS):
        classes = rng.permutation(domain.classes)[: min(way, domain.classes // 2)]
        rows = [rng.permutation(np.flatnonzero(domain.label == c))[: shots + QUERIES] for c in classes]
        support, label = np.concatenate([each[:shots] for each in rows]), np.repeat(np.arange(len(classes)), shots)
        known = np.concatenate([each[shots:] for each in rows])
        state = head.enroll(views.rows(support), label)
        found.append((measure(head, views.rows(support), label), head.compare(state, views.rows(known))))
    return found


def _false(tasks: list[tuple[Measured, Scores]], share: float) -> float:
    rates = []
    for measured, compared in tasks:
        shots = np.bincount([each.label for each in measured.left_out]).tolist()
        threshold = compute_threshold(Promise(share), shots, measured)
        score = threshold.levelled(compared.open_score, compared.logits.argmax(axis=1))
        rates.append((score > threshold.value).mean())
    return float(np.mean(rates))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("promise-work"))
    given = parser.parse_args()
    found = gather(domains("fast", given.work), given.work / "fast-threshold.json")
    for name in found:
        print(f"without {name}: {fit(found, name):.3f}")
    print(f"all: {fit(found):.3f}")
    for factor, rates in zip(GRID, np.mean(list(found.values()), axis=0), strict=True):
        cells = [
            f"{way} x {k}: " + " / ".join(f"{100 * r:.1f}" for r in row)
            for (way, k), row in zip(SHAPES, rates, strict=True)
        ]
        print(f"factor {factor}: targets of 2 / 5 / 10 %, " + "; ".join(cells))


if __name__ == "__main__":
    main()
