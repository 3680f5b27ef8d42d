"""Constants of ``glocal.recognizer.calibration.threshold`` that are fitted: ``tail`` and ``single``.

    GLOCAL_DATA=DIR python benchmarks/fit_constants.py [--work DIR]        # prints both

tail: of a few factors the one with which false unknowns meet their targets in the geometric mean over tasks of several
shapes.  The other constants of the rule were chosen once (docs/results/data/threshold-tried.csv).

single: quantile regression over tasks of one photo per class.  Its pinball loss is made smooth, and every domain weighs
the same.  Two heads take part, so that the table belongs to none of them.  Coefficients are drawn towards 0 (``L2``,
chosen by leaving domains out).  The constant is moved until the rates of the domains are off by a factor of 1 in the
geometric mean.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from domains import Domain, domains, head_without
from scipy.optimize import minimize
from scipy.special import expit
from tasks import tasks

from glocal.common.files import write_text
from glocal.recognizer.calibration import threshold as module
from glocal.recognizer.calibration.leave_one_out import measure
from glocal.recognizer.calibration.threshold import FITTED, Constants, compute_threshold
from glocal.recognizer.decision import Promise
from glocal.recognizer.features import Array

SHAPES = ("2 x 3", "2 x 5", "5 x 2", "5 x 3", "5 x 5", "5 x 10", "9 x 5")
SHARES = (0.02, 0.05, 0.1)
GRID = (0.85, 0.95, 1.0, 1.05, 1.15)
TASKS = 40
LEAST = 0.1  # of the target rate: a domain with less counts as having this much
SMOOTH, L2 = 0.02, 0.3  # width of the corner of the pinball loss, in gaps
HEADS = ("ridge", "protonet")


def fitted_without(name: str | None, gathered: dict[str, Any]) -> Constants:
    """From all domains but one."""
    rest = [each for domain, each in gathered.items() if domain != name]
    linear, square = FITTED.tail
    factor = fit_tail([each["tail"] for each in rest])
    single = fit_single([(np.array(each["x"]), np.array(each["y"])) for each in rest])
    return FITTED._replace(tail=(factor * linear, factor * square), single=single)


def gather(every: dict[str, Domain], kept: Path) -> dict[str, Any]:
    """By domain: false unknowns by factor, shape and share; numbers of tasks with one photo, and scores in gaps."""
    if not kept.exists():
        found = {}
        for name, domain in every.items():
            pairs = [_one_photo(*head_without(every, name, kind), domain) for kind in HEADS]
            x, y = (np.concatenate(each).tolist() for each in zip(*pairs, strict=True))
            found[name] = {"tail": _rates(*head_without(every, name), domain), "x": x, "y": y}
            print(f"fitted to {name}", flush=True)
        write_text(kept, json.dumps(found))
    read: dict[str, Any] = json.loads(kept.read_text("utf-8"))
    return read


def fit_tail(rates: Sequence[Any]) -> float:
    """The factor, from rates (domains, GRID, SHAPES, SHARES)."""
    mean = np.mean(rates, axis=0)
    off = np.log(np.maximum(mean, LEAST * np.array(SHARES)) / SHARES).mean(axis=(1, 2))
    return float(np.interp(0, -off, GRID))  # a larger factor leaves fewer false unknowns


def fit_single(rows: Sequence[tuple[Array, Array]]) -> tuple[tuple[float, ...], ...]:
    x, y = (np.concatenate(each) for each in zip(*rows, strict=True))
    weight = np.concatenate([np.full(len(scores), 1 / len(scores) / len(rows)) for _, scores in rows])
    mean, scale = x[:, 1:].mean(axis=0), x[:, 1:].std(axis=0)
    z, table = np.concatenate([x[:, :1], (x[:, 1:] - mean) / scale], axis=1), []
    for share in FITTED.shares:

        def loss(b: Array, share: float = share) -> tuple[float, Array]:
            off = y - z @ b
            slope = -z.T @ (weight * (expit(off / SMOOTH) - share)) + L2 * 2 * np.r_[0, b[1:]]
            smooth = np.logaddexp(0, off / SMOOTH) * SMOOTH - share * off
            return float((weight * smooth).sum() + L2 * np.square(b[1:]).sum()), slope

        own = minimize(loss, np.r_[1.0, 0, 0, 0], jac=True, method="L-BFGS-B").x
        slopes = own[1:] / scale
        off = np.split(y - z @ own, np.cumsum([len(scores) for _, scores in rows])[:-1])
        table.append((float(own[0] - slopes @ mean) + _centre(off, share), *slopes.tolist()))
    return tuple(table)


def _centre(off: Sequence[Array], share: float) -> float:
    """What to add to thresholds that scores are ``off`` from, domain by domain, for rates around the share."""
    low, high = -0.5, 0.5
    for _ in range(20):
        middle = (low + high) / 2
        ratio = np.mean([np.log(max(float((each > middle).mean()) / share, LEAST)) for each in off])
        low, high = (middle, high) if ratio > 0 else (low, middle)
    return low


def _one_photo(head: Any, views: Any, domain: Domain) -> tuple[Array, Array]:
    xs, ys = [], []
    for task in [
        each for kind in ("5 x 1", "2 x 1", "9 x 1") for each in tasks(domain.name, domain.label, kind, TASKS)
    ]:
        measured = measure(head, views.rows(task.support), task.label)
        compared = head.compare(head.enroll(views.rows(task.support), task.label), views.rows(task.known))
        strange = np.array([each.score for each in measured.strange])
        gap = strange.mean() - measured.own
        xs.append(np.tile((1.0, strange.std() / gap, np.log(len(task.shots)), measured.alike), (len(task.known), 1)))
        ys.append((compared.open_score - measured.own) / gap)
    return np.concatenate(xs), np.concatenate(ys)


def _rates(head: Any, views: Any, domain: Domain) -> list[Any]:
    (linear, square), found = FITTED.tail, np.zeros((len(GRID), len(SHAPES), len(SHARES)))
    for i, shape in enumerate(SHAPES):
        for task in tasks(domain.name, domain.label, shape, TASKS):
            measured = measure(head, views.rows(task.support), task.label)
            known = head.compare(head.enroll(views.rows(task.support), task.label), views.rows(task.known))
            for g, factor in enumerate(GRID):
                module.FITTED = FITTED._replace(tail=(factor * linear, factor * square))
                for s, share in enumerate(SHARES):
                    threshold = compute_threshold(Promise(share), task.shots, measured)
                    score = threshold.levelled(known.open_score, known.logits.argmax(axis=1))
                    found[g, i, s] += (score > threshold.value).mean() / TASKS
    module.FITTED = FITTED
    rates: list[Any] = found.tolist()
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("promise-work"))
    given = parser.parse_args()
    fitted = fitted_without(None, gather(domains("fast", given.work), given.work / "fast-constants.json"))
    print("tail", fitted.tail)
    for row in fitted.single:
        print("    (" + ", ".join(f"{each:.4f}" for each in row) + "),")


if __name__ == "__main__":
    main()
