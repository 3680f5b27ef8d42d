"""Is the promise kept on photos nobody has seen?  Thirteen domains, each measured with all that is fitted without it.

    GLOCAL_DATA=DIR python benchmarks/promise.py [--out promise-out] [--tasks 300] [--work DIR] [--encoder fast]

A task is 5 classes (3 where a domain has 6; some tasks have 2) with their support photos, 8 further photos of each and
8 of as many other classes.  Every task gets its threshold from its own support alone, then is counted: known photos
called unknown, unknown ones caught, names right.  Beside it cosine prototypes on the same encoder and the same tasks,
with the same calibration.  The whitening never saw the domain; the coefficients for one photo and the factor of the
tail are fitted again without it.  Intervals come from a
bootstrap over the classes of a domain.

Finished parts of a domain are kept in --work and not measured again: delete the files of what has changed.  Writes
promise.json, and by promise_page.py promise.md and promise.png; about an hour on one core.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import fit_one_photo
import fit_threshold
import numpy as np
from domains import Domain, domains, head_without

from glocal.common.files import write_text
from glocal.recognizer.calibration import threshold as module
from glocal.recognizer.calibration.leave_one_out import Measured, measure, with_unknowns
from glocal.recognizer.calibration.threshold import Constants, compute_threshold
from glocal.recognizer.decision import Decision, Promise
from glocal.recognizer.diagnosis.outlook import outlook
from glocal.recognizer.features import Features
from glocal.recognizer.heads.head import Head

Rows = np.ndarray[Any, np.dtype[np.int64]]
PROMISES = (0.02, 0.05, 0.1, 0.2, 0.3)
QUERIES, WAY = 8, 5
KINDS = {"1": 1, "2": 2, "3": 3, "5": 5, "10": 10}
TWO = {"two classes of 2": 2, "two classes of 3": 3, "two classes of 5": 5}
UNEQUAL = "1 to 10"
EIGHT = 8
KNOWN_UNKNOWNS = (5, 20, 40)
SEED = 0
MANY = {20: 20, 50: 8}  # classes -> tasks


class Task:
    """Rows of a domain: support by class, known and unknown queries."""

    def __init__(self, domain: Domain, shots: list[int], rng: np.random.Generator, aside: int = 0) -> None:
        order = rng.permutation(domain.classes)
        way = len(shots)
        self.classes, support, query = order[:way], [], []
        for c, k in zip(self.classes, shots, strict=True):
            rows = rng.permutation(np.flatnonzero(domain.label == c))
            support.append(rows[:k])
            query.append(rows[k : k + QUERIES])
        self.support, self.known = np.concatenate(support), np.concatenate(query)
        self.label = np.repeat(np.arange(way), [len(each) for each in support])
        self.truth = np.repeat(np.arange(way), [len(each) for each in query])
        self.shots = [len(each) for each in support]
        unknown = order[way : 2 * way]
        self.unknown = np.concatenate([rng.permutation(np.flatnonzero(domain.label == c))[:QUERIES] for c in unknown])
        others = np.flatnonzero(~np.isin(domain.label, order[: 2 * way]))
        self.aside = rng.permutation(others)[:aside]

    def kept(self, keep: Any) -> Task:
        """With only some of the support photos; classes without any are gone, and so are their known photos."""
        found = copy(self)
        left, found.label = np.unique(self.label[keep], return_inverse=True)
        found.support, found.shots = self.support[keep], np.bincount(found.label).tolist()
        asked = np.isin(self.truth, left)
        found.known, found.truth = self.known[asked], np.searchsorted(left, self.truth[asked])
        return found

    def mixed_up(self, rng: np.random.Generator) -> Task:
        """The same photos in the wrong folders: nothing is left to tell the classes by."""
        found = copy(self)
        found.support = rng.permutation(self.support)
        return found


def way_of(domain: Domain) -> int:
    return min(WAY, domain.classes // 2)


def tasks(domain: Domain, kind: str, n: int, *, way: int | None = None, aside: int = 0) -> Iterator[Task]:
    rng = np.random.default_rng((SEED, sum(map(ord, domain.name + kind))))
    if way is None:
        way = 2 if kind in TWO else way_of(domain)
    most = int(np.bincount(domain.label).min()) - QUERIES
    for _ in range(n):
        if kind == "1 to 10":
            shots = rng.integers(1, 11, way).tolist()
        else:
            shots = [{"8 each": EIGHT, **KINDS, **TWO}[kind]] * way
        yield Task(domain, [min(k, most) for k in shots], rng, aside)


def score(head: Head, views: Features, task: Task, *, use_aside: bool = False) -> tuple[Measured, Any, Any]:
    support = views.rows(task.support)
    aside = views.rows(task.aside) if use_aside else None
    measured = measure(head, support, task.label, aside=aside)
    state = head.enroll(*with_unknowns(head, support, task.label, aside))
    return measured, head.compare(state, views.rows(task.known)), head.compare(state, views.rows(task.unknown))


def auroc(known: Any, unknown: Any) -> float:
    order = (unknown[None] > known[:, None]) + 0.5 * (unknown[None] == known[:, None])
    return float(order.mean())


def decided(task: Task, measured: Measured, known: Any, unknown: Any, share: float) -> tuple[Any, Any, Decision]:
    threshold = compute_threshold(Promise(share), task.shots, measured)
    decision = Decision(threshold, measured)
    false, caught = (
        threshold.levelled(each.open_score, each.logits.argmax(axis=1)) > threshold.value for each in (known, unknown)
    )
    return false, caught, decision


def measure_kind(head: Head, views: Features, domain: Domain, kind: str, n: int) -> dict[str, Any]:
    """Per task: rates at each promise, ACC, AUROC, what is caught at a true 5 %, what the recognizer said before."""
    found: dict[str, list[Any]] = {}
    for task in tasks(domain, kind, n):
        measured, known, unknown = score(head, views, task)
        right = known.logits.argmax(axis=1) == task.truth
        row: dict[str, Any] = {
            "acc": float(right.mean()),
            "auroc": auroc(known.open_score, unknown.open_score),
            "at_true": float((unknown.open_score > np.quantile(known.open_score, 0.95)).mean()),
            "classes": task.classes.tolist(),
        }
        false, caught = [], []
        for share in PROMISES:
            wrong, hit, decision = decided(task, measured, known, unknown, share)
            false.append(float(wrong.mean()))
            caught.append(float(hit.mean()))
            if share == 0.05:
                said = outlook(task.shots, decision)
                row["said_named"] = said.named_right_expected
                row["said_caught"] = None if said.caught is None else said.caught.value
                row["usable"] = said.usable
                low, high = decision.threshold.interval or (0.0, 1.0)
                slack = 1.96 * np.sqrt(share * (1 - share) / len(wrong))
                row["inside"] = bool(low - slack <= wrong.mean() <= high + slack)
        row |= {"false": false, "caught": caught, "way": len(task.shots)}
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    return found


def measure_cut(head: Head, views: Features, domain: Domain, n: int) -> dict[str, Any]:
    """Classes with eight photos, and one more: with one photo, with eight.  The same photos are asked about each time.

    *others* are unknown photos that lie nearest to a class with eight: what happens to them when the new class comes.
    """
    found: dict[str, list[float]] = {}
    for task in tasks(domain, "8 each", n):
        first = np.flatnonzero(task.label == 0)
        one = task.kept(np.setdiff1d(np.arange(len(task.label)), first[1:]))
        before = task.kept(task.label > 0)
        (m, k, u), (m1, k1, u1), (m0, k0, u0) = (score(head, views, each) for each in (task, one, before))
        _, caught, _ = decided(task, m, k, u, 0.05)
        wrong1, caught1, _ = decided(one, m1, k1, u1, 0.05)
        _, caught0, _ = decided(before, m0, k0, u0, 0.05)
        others = u1.logits.argmax(axis=1) > 0
        named = k1.logits.argmax(axis=1) == task.truth
        row = {
            "caught_8": caught.mean(),
            "caught_1": caught1.mean(),
            "others_before": caught0[others].sum(),
            "others_after": caught1[others].sum(),
            "others": others.sum(),
            "first_false": wrong1[task.truth == 0].mean(),
            "other_false": wrong1[task.truth > 0].mean(),
            "first_named": named[task.truth == 0].mean(),
            "other_named": named[task.truth > 0].mean(),
        }
        for name, value in row.items():
            found.setdefault(name, []).append(float(value))
    return found


def measure_mixed_up(head: Head, views: Features, domain: Domain, n: int) -> dict[str, Any]:
    """Photos in the wrong folders: how often that is called not usable, by photos per class."""
    rng, found = np.random.default_rng(SEED), {}
    for kind in KINDS:
        said = []
        for task in tasks(domain, kind, n):
            wrong = task.mixed_up(rng)
            measured, known, unknown = score(head, views, wrong)
            _, _, decision = decided(wrong, measured, known, unknown, 0.05)
            said.append(outlook(wrong.shots, decision).usable)
        found[kind] = said
    return found


def measure_aside(head: Head, views: Features, domain: Domain, n: int) -> dict[str, Any]:
    """5 photos per class, with and without known unknowns of classes that are asked about nowhere."""
    way = max(2, min(WAY, domain.classes // 3))
    found: dict[str, Any] = {}
    for count in (0, *KNOWN_UNKNOWNS):
        rows = []
        for task in tasks(domain, "5", n, way=way, aside=max(KNOWN_UNKNOWNS)):
            task.aside = task.aside[:count]
            measured, known, unknown = score(head, views, task, use_aside=count > 0)
            false, caught, _ = decided(task, measured, known, unknown, 0.05)
            rows.append((float(false.mean()), float(caught.mean()), auroc(known.open_score, unknown.open_score)))
        found[str(count)] = np.mean(rows, axis=0).tolist()
    return found


def measure_many(head: Head, views: Features, domain: Domain) -> dict[str, Any]:
    """Tasks of 20 and 50 classes, equal and unequal, where a domain has twice as many."""
    found: dict[str, Any] = {}
    for way, n in MANY.items():
        for kind in ("5", "1 to 10"):
            if domain.classes < 2 * way:
                continue
            rows = []
            for task in tasks(domain, kind, n, way=way):
                measured, known, unknown = score(head, views, task)
                false, caught, _ = decided(task, measured, known, unknown, 0.05)
                right = float((known.logits.argmax(axis=1) == task.truth).mean())
                rows.append((float(false.mean()), float(caught.mean()), right))
            found[f"{way} classes, {kind} photos"] = np.mean(rows, axis=0).tolist()
    return found


def fitted_without(domain: str, single: dict[str, Any], tail: dict[str, Any]) -> None:
    """Let the threshold know only what the other domains show."""
    rows = [rows for name, rows in single.items() if name != domain]
    fitted = Constants(single=fit_one_photo.fit(rows))
    module.FITTED = fit_threshold.with_factor(fit_threshold.fit(tail, domain), fitted)


def kept_or(kept: Path, measured: Callable[[], Any]) -> Any:
    """What an earlier run measured, or now."""
    if not kept.exists():
        write_text(kept, json.dumps(measured()))
    return json.loads(kept.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("promise-out"))
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--work", type=Path, default=Path("promise-work"))
    parser.add_argument("--encoder", default="fast")
    given = parser.parse_args()
    every = domains(given.encoder, given.work)
    single = fit_one_photo.gather(every, given.work / f"{given.encoder}-one-photo.npz")
    tail = fit_threshold.gather(every, given.work / f"{given.encoder}-threshold.json")
    result: dict[str, Any] = {"tasks": given.tasks, "encoder": given.encoder, "promises": PROMISES, "domains": {}}
    for name, domain in every.items():
        fitted_without(name, single, tail)
        head, views_of = head_without(every, name)
        plain, plain_of = head_without(every, name, "protonet")
        ours, theirs = views_of(domain), plain_of(domain)
        kept = f"{given.encoder}-{name}-{given.tasks}"

        def part(what: str, measured: Callable[[], Any], kept: str = kept) -> Any:
            return kept_or(given.work / f"{kept}-{what}.json", measured)

        result["domains"][name] = {
            "classes": domain.classes,
            "ours": {
                kind: part(f"ours {kind}", partial(measure_kind, head, ours, domain, kind, given.tasks))
                for kind in (*KINDS, *TWO, UNEQUAL)
            },
            "cosine": {
                kind: part(f"cosine {kind}", partial(measure_kind, plain, theirs, domain, kind, given.tasks))
                for kind in (*KINDS, "two classes of 5")
            },
            "cut": part("cut", partial(measure_cut, head, ours, domain, given.tasks)),
            "mixed up": part("mixed up", partial(measure_mixed_up, head, ours, domain, max(20, given.tasks // 3))),
            "known unknowns": part("aside", partial(measure_aside, head, ours, domain, max(20, given.tasks // 5))),
        }
        print(name, flush=True)
    head, views_of = head_without(every, "caltech")
    every_many = partial(measure_many, head, views_of(every["caltech"]), every["caltech"])
    result["many"] = kept_or(given.work / f"{given.encoder}-many.json", every_many)
    from promise_page import write_page

    write_page(result, given.out)


if __name__ == "__main__":
    main()
