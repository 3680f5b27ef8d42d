"""Are the groups of unknown photos right, and do suggested labels help?  Thirteen domains, each fitted without it.

    GLOCAL_DATA=DIR python benchmarks/groups.py groups|suggest|size [--tasks 100] [--work DIR] [--out docs/results/data]

A task is 5 classes with 5 photos each; a folder holds 8 further photos of each, 12 photos of 5 unknown classes and 10
strays of further classes.  Where a domain has fewer than 15 classes, each of the three parts has a third of them, and a
further class gives at most two strays.  ``groups`` puts the photos called unknown into groups, beside k-means with the
true number and HDBSCAN with its defaults on the same vectors; the level never saw the domain.  Then a person names the
largest group, and the next, until 90 % of the photos of unknown classes are taught; others are unticked.

``suggest`` begins with 2 photos of each class and a folder of 10 photos of each known and unknown class.  A label adds
a photo to its class, or to the known unknowns.  ``size`` takes the time for synthetic vectors.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from domains import Domain, domains, head_without
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score

from glocal.common.files import write_text
from glocal.recognizer import groups, suggest
from glocal.recognizer.calibration.leave_one_out import measure, with_unknowns
from glocal.recognizer.calibration.probability import probabilities
from glocal.recognizer.calibration.threshold import compute_threshold
from glocal.recognizer.decision import Promise
from glocal.recognizer.features import Features
from glocal.recognizer.heads.head import Head

Rows = np.ndarray[Any, np.dtype[np.int64]]
WAY, SHOTS, FEW_SHOTS = 5, 5, 2
NEW, STRAYS, KNOWN, POOL = 12, 10, 8, 10
SHARES = np.arange(0.2, 0.71, 0.05).round(2)
TAUGHT = 0.9
LABELS = (0, 5, 10, 20)


@dataclass
class Taught:
    """A recognizer of rows of a domain; the label of a row is its class in the domain."""

    head: Head
    views: Features
    label: Rows  # of the domain
    support: Rows
    aside: Rows

    def __post_init__(self) -> None:
        self.support = self.support[np.argsort(self.label[self.support], kind="stable")]
        self.classes, own = np.unique(self.label[self.support], return_inverse=True)
        support, aside = self.views.rows(self.support), self.views.rows(self.aside) if len(self.aside) else None
        measured = measure(self.head, support, own, aside=aside)
        self.threshold = compute_threshold(Promise(), np.bincount(own).tolist(), measured)
        self.state = self.head.enroll(*with_unknowns(self.head, support, own, aside))

    def ask(self, rows: Rows) -> tuple[Rows, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The nearest class of each, whether it is called unknown, and its probabilities."""
        compared = self.head.compare(self.state, self.views.rows(rows))
        best = compared.logits.argmax(axis=1)
        unknown = self.threshold.levelled(compared.open_score, best) > self.threshold.value
        return self.classes[best], unknown, probabilities(compared, self.threshold)

    def rates(self, rows: Rows) -> tuple[float, float]:
        """Named right, and called unknown."""
        name, unknown, _ = self.ask(rows)
        return float(((name == self.label[rows]) & ~unknown).mean()), float(unknown.mean())


def split(domain: Domain, n: int) -> Iterator[tuple[list[Rows], list[Rows], list[Rows]]]:
    """Shuffled rows of each known, unknown and further class, task by task."""
    rng = np.random.default_rng(sum(map(ord, domain.name)))
    way = min(WAY, domain.classes // 3)
    for _ in range(n):
        rows = [rng.permutation(np.flatnonzero(domain.label == c)) for c in rng.permutation(domain.classes)]
        yield rows[:way], rows[way : 2 * way], rows[2 * way :]


def strays(further: list[Rows]) -> Rows:
    return np.array([rows[k] for k in range(2) for rows in further][:STRAYS])


def named(found: Sequence[Sequence[int]], truth: Rows, wanted: Rows) -> tuple[int, list[int]]:
    """How many names until ``TAUGHT`` of the photos of classes ``wanted`` are taught, and the rows that then are."""
    photos, taught, names = int(np.isin(truth, wanted).sum()), list[int](), 0
    for rows in found:
        if np.isin(truth[taught], wanted).sum() >= TAUGHT * photos:
            break
        label = Counter(truth[list(rows)].tolist()).most_common(1)[0][0]
        taught += [i for i in rows if truth[i] == label]
        names += 1
    return names, taught


def by_label(label: Rows) -> list[list[int]]:
    """Groups, the largest first; a label below 0 is a photo on its own."""
    own = np.where(label < 0, len(label) + np.arange(len(label)), label)
    return sorted((np.flatnonzero(own == c).tolist() for c in np.unique(own)), key=len, reverse=True)


def compared(found: Sequence[Sequence[int]], truth: Rows, wanted: Rows) -> dict[str, float]:
    own = np.empty(len(truth), np.int64)
    for c, rows in enumerate(found):
        own[list(rows)] = c
    above = np.triu(np.ones((len(truth),) * 2, dtype=bool), 1)
    true, put = ((each[:, None] == each) & above for each in (truth, own))
    both = (true & put).sum()
    row = {"ari": float(adjusted_rand_score(truth, own)), "names": float(named(found, truth, wanted)[0])}
    row["pairs_found"] = float(both / true.sum()) if true.any() else np.nan
    row["found_right"] = float(both / put.sum()) if put.any() else np.nan
    return row


def measure_groups(every: dict[str, Domain], name: str, n: int) -> list[dict[str, dict[str, float]]]:
    """Of each task: ours at each share, the two others, and what the recognizer answers after it was taught."""
    head, views = head_without(every, name)
    domain, rated = every[name], []
    label = domain.label
    for known, new, further in split(domain, n):
        support = np.concatenate([rows[:SHOTS] for rows in known])
        fresh = np.concatenate([rows[SHOTS : SHOTS + KNOWN] for rows in known])
        folder = np.concatenate([fresh, *(rows[:NEW] for rows in new), strays(further)])
        first = Taught(head, views, label, support, support[:0])
        rows = folder[first.ask(folder)[1]]
        truth = label[rows]
        wanted = np.array([c for c in {label[each[0]] for each in new} if (truth == c).sum() > 1], np.int64)
        if not len(wanted):
            continue  # nothing to be grouped was called unknown
        ours = {share: ours_at(share, views, first, rows) for share in SHARES.tolist()}
        few = KMeans(len(np.unique(truth)), n_init=3, random_state=0).fit_predict(views.vec[rows])
        dense = HDBSCAN(copy=True).fit_predict(views.vec[rows]) if len(rows) >= 5 else np.full(len(rows), -1)
        ways = {f"glocal {share}": found for share, found in ours.items()}
        ways |= {"k-means": by_label(few), "HDBSCAN": by_label(dense)}
        row = {kind: compared(found, truth, wanted) for kind, found in ways.items()}
        taught = rows[named(ours[groups.SHARE], truth, wanted)[1]]
        taught = taught[np.isin(label[taught], [*wanted, *first.classes])]
        after = Taught(head, views, label, np.concatenate([first.support, taught]), taught[:0])
        row["after"] = {"unknown": float(len(rows)), "classes": float(len(wanted))}
        for key, test in {
            "known": np.concatenate([each[SHOTS + KNOWN :] for each in known]),
            "new": np.concatenate([each[NEW:] for each in new if label[each[0]] in wanted]),
            "further": np.concatenate([each[2 : 2 + NEW] for each in further]),
        }.items():
            right, unknown = after.rates(test)
            row["after"] |= {f"{key}_right": right, f"{key}_unknown": unknown, f"{key}_before": first.rates(test)[1]}
        rated.append(row)
    return rated


def ours_at(share: float, views: Features, first: Taught, rows: Rows) -> list[list[int]]:
    own = np.searchsorted(first.classes, first.label[first.support])
    return groups.group(views.vec[rows], groups.level_of(views.vec[first.support], own, share))


def write_groups(every: dict[str, Domain], n: int, given: argparse.Namespace) -> None:
    rated = measured(every, n, given, measure_groups)
    if len(rated) < len(every):
        return
    aris = {name: [mean_of(some, f"glocal {share}")["ari"] for share in SHARES] for name, some in rated.items()}
    lines = []
    for name, some in rated.items():
        share = SHARES[np.mean([aris[other] for other in aris if other != name], axis=0).argmax()]
        for kind, key in (("glocal", f"glocal {share}"), ("k-means", "k-means"), ("HDBSCAN", "HDBSCAN")):
            more = {"share": float(share), **mean_of(some, "after")} if kind == "glocal" else {}
            lines.append({"domain": name, "grouping": kind, "tasks": len(some), **mean_of(some, key), **more})
    print("all domains:", SHARES[np.mean(list(aris.values()), axis=0).argmax()], typical(every))
    write_csv(lines, given.out / "groups.csv")


def mean_of(rated: list[dict[str, dict[str, float]]], kind: str) -> dict[str, float]:
    """Over the tasks that have a value."""
    table = {key: [each[kind][key] for each in rated if each[kind][key] == each[kind][key]] for key in rated[0][kind]}
    return {key: float(np.mean(values)) if values else math.nan for key, values in table.items()}


def typical(every: dict[str, Domain]) -> tuple[float, float]:
    """Mean cosines within and between classes, over the domains: what a support without pairs falls back on."""
    pairs = []
    for name, domain in every.items():
        vec = head_without(every, name)[1].vec
        pairs.append(groups.mean_cosines(vec, domain.label))
    within, between = np.mean(pairs, axis=0)
    return float(within), float(between)


def measured(
    every: dict[str, Domain],
    n: int,
    given: argparse.Namespace,
    measure_domain: Callable[[dict[str, Domain], str, int], Any],
) -> dict[str, Any]:
    """By domain; what an earlier run kept in --work is not measured again."""
    rated = {}
    for name in given.only or every:
        kept = given.work / f"{measure_domain.__name__}-{name}-{n}.json"
        if not kept.exists():
            write_text(kept, json.dumps(measure_domain(every, name, n)))
        rated[name] = json.loads(kept.read_text("utf-8"))
    return rated


def measure_suggest(every: dict[str, Domain], name: str, n: int) -> dict[str, Any]:
    """By way of choosing: named right and caught after each number of labels, the mean over tasks."""
    head, views = head_without(every, name)
    domain, curves = every[name], {"suggested": list[Any](), "random": list[Any]()}
    for task in split(domain, n):
        for kind, rated in curves.items():
            rated.append(curve(head, views, domain.label, task, kind))
    return {kind: np.mean(rated, axis=0).tolist() for kind, rated in curves.items()}


def write_suggest(every: dict[str, Domain], n: int, given: argparse.Namespace) -> None:
    lines = [
        {"domain": name, "labels": labels, "chosen": kind, "tasks": n, "right": right, "caught": caught}
        for name, curves in measured(every, n, given, measure_suggest).items()
        for kind, rated in curves.items()
        for labels, (right, caught) in zip(LABELS, rated, strict=True)
    ]
    if not given.only:
        write_csv(lines, given.out / "suggest.csv")


def curve(head: Head, views: Features, label: Rows, task: tuple[list[Rows], ...], kind: str) -> list[Any]:
    """Named right and caught after each number of labels; neither test has a photo of the folder."""
    known, new, further = task
    support, aside = np.concatenate([rows[:FEW_SHOTS] for rows in known]), np.empty(0, np.int64)
    left = np.concatenate([rows[FEW_SHOTS : FEW_SHOTS + POOL] for rows in known + new])
    right, caught = (np.concatenate([rows[FEW_SHOTS + POOL :] for rows in some]) for some in (known, further))
    rng, rated = np.random.default_rng(int(support.sum())), []
    for more in np.diff(LABELS, prepend=0).tolist():
        if more:
            if kind == "random":
                pick = rng.permutation(len(left))[:more].tolist()
            else:
                weight = 1 - taught.ask(left)[2][:, -1]  # noqa: F821 - of the round before
                labelled = views.vec[np.concatenate([support, aside])]
                pick = suggest.choose(views.vec[left], more, weight=weight, labelled=labelled)
            some, left = left[pick], np.delete(left, pick)
            is_known = np.isin(label[some], label[support])
            support = np.concatenate([support, some[is_known]])
            aside = np.concatenate([aside, some[~is_known]])
        taught = Taught(head, views, label, support, aside)
        rated.append((taught.rates(right)[0], taught.rates(caught)[1]))
    return rated


def write_size(_: dict[str, Domain], n: int, given: argparse.Namespace) -> None:
    """Synthetic: classes of 12 with cosines of 0.5 within, and as many photos on their own."""
    lines = []
    for photos in (200, 1_000, 10_000, 30_000, 100_000):
        rng = np.random.default_rng(0)
        label = np.concatenate([np.arange(photos // 2) // NEW, photos + np.arange(photos - photos // 2)])
        centre = rng.standard_normal((photos // 2 // NEW + 1, 1280), dtype=np.float32)
        vec = rng.standard_normal((photos, 1280), dtype=np.float32)
        vec[: photos // 2] += centre[label[: photos // 2]]
        start = time.process_time()
        found = groups.group(vec, 0.25)
        took = time.process_time() - start
        own = np.empty(photos, np.int64)
        for c, rows in enumerate(found):
            own[rows] = c
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        ari = adjusted_rand_score(label, own)
        lines.append({"photos": photos, "cpu_seconds": took, "peak_gib": peak, "groups": len(found), "ari": ari})
        print(lines[-1], flush=True)
        write_csv(lines, given.out / "groups-size.csv")


def write_csv(lines: list[dict[str, Any]], path: Path) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for line in lines for key in line)), lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({key: round(value, 4) if isinstance(value, float) else value for key, value in line.items()})
    write_text(path, text.getvalue())


PARTS: dict[str, Callable[[dict[str, Domain], int, argparse.Namespace], None]] = {
    "groups": write_groups,
    "suggest": write_suggest,
    "size": write_size,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--work", type=Path, default=Path("groups-work"))
    parser.add_argument("--only", nargs="*", help="Measure these domains, keep that in --work, and end.")
    parser.add_argument("--out", type=Path, default=Path("docs/results/data"))
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    PARTS[given.part]({} if given.part == "size" else domains("fast", given.work), given.tasks, given)


if __name__ == "__main__":
    main()
