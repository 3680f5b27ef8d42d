"""Tasks from domains of photos, and what a head with its threshold makes of them: shared by several benchmarks.

A task is some classes with their support photos, 8 further photos of each, and 8 of as many unknown classes.  Its kind
is written as classes x photos per class: "5 x 2", "5 x 1 to 10", "4 x 8 and 1 x 1".
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glocal.common.files import write_text
from glocal.recognizer.calibration.leave_one_out import LeftOut, Measured, measure, with_unknowns
from glocal.recognizer.calibration.threshold import compute_threshold
from glocal.recognizer.decision import Promise
from glocal.recognizer.features import Array, Features
from glocal.recognizer.heads.head import Head, Scores
from glocal.recognizer.heads.ridge import Cells, Ridge

QUERIES = 8  # of each class
ONE_BESIDE = "4 x 8 and 1 x 1"
SHARES = (0.05, 0.02, 0.1)  # target rates; what is said of one of them is said of the first
NEARER, NEAR = 1.5, 3.0  # points around the target rate
SEED = 0


class Task(NamedTuple):
    """Rows of a domain."""

    shots: list[int]
    support: Array
    label: Array  # of support
    known: Array
    truth: Array  # of known
    unknown: Array
    aside: Array  # photos of classes that are asked about nowhere
    further: Array  # photos of the enrolled classes that are asked about nowhere


def tasks(name: str, label: Array, kind: str, n: int) -> Iterator[Task]:
    """The same for every head and encoder.  A domain with too few classes gives smaller tasks, and none of 50."""
    rng = np.random.default_rng((SEED, sum(map(ord, name + kind))))
    classes = int(label.max()) + 1
    way = min(5 if kind == ONE_BESIDE else int(kind.split()[0]), classes // 2)
    most = int(np.bincount(label).min()) - QUERIES
    for _ in range(n if kind.split()[0] != "50" or way == 50 else 0):
        if kind == ONE_BESIDE:
            shots = [1, *[8] * (way - 1)]
        elif kind.endswith("1 to 10"):
            shots = rng.integers(1, 11, way).tolist()
        else:
            shots = [int(kind.split()[-1])] * way
        shots = [min(k, most) for k in shots]
        order = rng.permutation(classes)
        rows = [rng.permutation(np.flatnonzero(label == c)) for c in order[:way]]
        unknown = [rng.permutation(np.flatnonzero(label == c))[:QUERIES] for c in order[way : 2 * way]]
        yield Task(
            shots,
            np.concatenate([each[:k] for each, k in zip(rows, shots, strict=True)]),
            np.repeat(np.arange(way), shots),
            np.concatenate([each[k : k + QUERIES] for each, k in zip(rows, shots, strict=True)]),
            np.repeat(np.arange(way), QUERIES),
            np.concatenate(unknown),
            rng.permutation(np.flatnonzero(~np.isin(label, order[: 2 * way]))),
            rng.permutation(np.concatenate([each[k + QUERIES :] for each, k in zip(rows, shots, strict=True)])),
        )


class TableRidge(Ridge):
    """The head with the matches of all pairs of a domain's photos taken once: its cells are row numbers.

    The same numbers, and a hundred times as many tasks in the time.
    """

    def __init__(self, matches: Array, *, whiten: float = 0.0) -> None:
        super().__init__(whiten=whiten)
        self._matches = matches

    def match(self, some: Cells, others: Cells, shape: tuple[int, ...]) -> Array:
        if not others:
            return np.zeros(shape, np.float32)
        return self._matches[np.ix_(some[0].ravel().astype(int), others[0].ravel().astype(int))]


def numbered(vec: Array) -> Features:
    """Features for ``TableRidge``."""
    return Features(vec, (np.arange(len(vec), dtype=np.float32)[:, None, None, None],))


def counted(
    head: Head, views: Features, label: Array, task: Task, *, aside: int = 0, confirmed: int = 0
) -> dict[str, Any]:
    """Rates of one task, in %; ``aside`` known unknowns are enrolled, and so many further photos were confirmed."""
    support, unknowns = views.rows(task.support), views.rows(task.aside[:aside]) if aside else None
    state = head.enroll(*with_unknowns(head, support, task.label, unknowns))
    known, unknown = (head.compare(state, views.rows(rows)) for rows in (task.known, task.unknown))
    measured = measure(head, support, task.label, aside=unknowns)
    if confirmed:
        measured = Measured(**{**vars(measured), "confirmed": _confirmed(head, state, views, label, task, confirmed)})
    false, caught, inside = [], [], 0.0
    for share in SHARES:
        threshold = compute_threshold(Promise(share), task.shots, measured)
        over = [threshold.levelled(s.open_score, s.logits.argmax(axis=1)) > threshold.value for s in (known, unknown)]
        false.append(100 * over[0].mean())
        caught.append(100 * over[1].mean())
        if share == SHARES[0]:
            (low, high), slack = threshold.interval or (0.0, 1.0), 1.96 * np.sqrt(share * (1 - share) / len(over[0]))
            inside = 100 * float(low - slack <= over[0].mean() <= high + slack)
    return {
        "accuracy": 100 * float((known.logits.argmax(axis=1) == task.truth).mean()),
        "auroc": 100 * auroc(known.open_score, unknown.open_score),
        "exact": 100 * float((unknown.open_score > np.quantile(known.open_score, 1 - SHARES[0])).mean()),
        "false": false,
        "caught": caught,
        "inside": inside,
    }


def auroc(known: Array, unknown: Array) -> float:
    return float(((unknown[None] > known[:, None]) + 0.5 * (unknown[None] == known[:, None])).mean())


def lowest_tenth(caught: Array) -> float:
    """The mean of the tasks that catch least."""
    return float(np.sort(caught)[: max(1, len(caught) // 10)].mean())


def summary(found: Sequence[dict[str, Any]]) -> dict[str, float | int]:
    """Means over domains; ``found`` are those that had tasks."""
    false = np.array([np.mean(each["false"], axis=0) for each in found])  # (domains, shares)
    caught = [np.array(each["caught"])[:, 0] for each in found]
    off = abs(false[:, 0] - 5)
    numbers: dict[str, float | int] = {
        "false unknowns %": float(false[:, 0].mean()),
        "caught in use %": float(np.mean([each.mean() for each in caught])),
        "lowest tenth of tasks %": float(np.mean([lowest_tenth(each) for each in caught])),
        "caught at exactly 5 % of each task": float(np.mean([np.mean(each["exact"]) for each in found])),
        "names right %": float(np.mean([np.mean(each["accuracy"]) for each in found])),
        "AUROC": float(np.mean([np.mean(each["auroc"]) for each in found])),
        "false unknowns % at 2 %": float(false[:, 1].mean()),
        "false unknowns % at 10 %": float(false[:, 2].mean()),
        "tasks inside the interval %": float(np.mean([np.mean(each["inside"]) for each in found])),
    }
    return numbers | {
        "domains within 1.5": int((off <= NEARER).sum()),
        "domains within 3": int((off <= NEAR).sum()),
        "domains": len(found),
    }


def write_table(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, rows[0], lineterminator="\n")
    table.writeheader()
    table.writerows({k: f"{v:.1f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    write_text(path, text.getvalue())


def _confirmed(head: Head, state: Any, views: Features, label: Array, task: Task, most: int) -> tuple[LeftOut, ...]:
    """What a person confirmed: further photos of the enrolled classes, with their classes."""
    rows, number = task.further[:most], {label[row]: n for row, n in zip(task.support, task.label, strict=True)}
    scores: Scores = head.compare(state, views.rows(rows))
    nearest, classes = scores.logits.argmax(axis=1), [number[label[row]] for row in rows]
    return tuple(
        LeftOut(c, task.shots[c], float(score), nearest=int(n))
        for c, score, n in zip(classes, scores.open_score, nearest, strict=True)
    )
