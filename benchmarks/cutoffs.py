"""Cut-offs that people set by hand against the threshold that enroll sets: the same vectors, thirteen domains.

    GLOCAL_DATA=DIR python benchmarks/cutoffs.py fast [--tasks 60] [--work DIR] [--out docs]

Tasks are 5 classes of 5 photos.  A cut-off by hand is generous: it refuses exactly 5 % of the known photos of a domain
that is labelled for it.  Then it is used on another domain.  A fixed cut-off refuses 5 % in the mean over the twelve
other domains.  The threshold of glocal sees the 25 enrolled photos alone.  Writes data/against-cutoffs.csv under
results, and pictures/against-cutoffs.svg with the first encoder.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from encoders import encoded, whiten
from tasks import TableRidge, counted, numbered, tasks, write_table

from glocal.recognizer.features import Array, Features
from glocal.recognizer.heads.prototypes import Prototypes

KIND, TARGET, NEIGHBOURS = "5 x 5", 0.05, 3
GREY, BLUE, GREEN = "#808a94", "#4a86c5", "#2f9e5b"
METHODS = {  # -> colour
    "cosine, cut-off set on another domain": GREY,
    "cosine, best cut-off over the other domains": GREY,
    "3 nearest neighbours, best cut-off over the other domains": GREY,
    "cosine, threshold of glocal": BLUE,
    "glocal": GREEN,
}


class Scored(NamedTuple):
    """Open scores of every task of a domain, (tasks, photos)."""

    known: Array
    unknown: Array


def cosine(vec: Array, task: Any, rows: Array) -> Array:
    head = Prototypes()
    return head.compare(head.enroll(Features(vec[task.support]), task.label), Features(vec[rows])).open_score


def neighbours(vec: Array, task: Any, rows: Array) -> Array:
    """The distance to the third nearest enrolled photo."""
    similar: Array = np.sort(vec[rows] @ vec[task.support].T, axis=1)[:, -NEIGHBOURS]
    return -similar


def fixed(every: dict[str, Scored], *, alone: bool) -> dict[str, list[tuple[Array, Array]]]:
    """By domain: false and caught unknowns of its tasks, at a cut-off of each other domain or at that of all others."""
    found: dict[str, list[tuple[Array, Array]]] = {}
    for domain, scores in every.items():
        others = [each.known.ravel() for name, each in every.items() if name != domain]
        cuts = [np.quantile(each, 1 - TARGET) for each in others] if alone else [_common(others)]
        found[domain] = [((scores.known > cut).mean(axis=1), (scores.unknown > cut).mean(axis=1)) for cut in cuts]
    return found


def _common(others: Sequence[Array]) -> float:
    """Where the target rate is met in the mean over domains, each of which weighs the same."""
    every = np.concatenate([np.quantile(each, np.linspace(0, 1, 1001)) for each in others])
    return float(np.quantile(every, 1 - TARGET))


def measured(name: str, work: Path, n: int) -> dict[str, dict[str, list[tuple[Array, Array]]]]:
    """By method and domain: false and caught unknowns of its tasks, once for each cut-off."""
    ways: dict[str, Callable[..., Array]] = {"cosine": cosine, "neighbours": neighbours}
    scores: dict[str, dict[str, Scored]] = {each: {} for each in ways}
    ours: dict[str, dict[str, list[tuple[Array, Array]]]] = {each: {} for each in list(METHODS)[3:]}
    for domain, label, vec, matches in encoded([name], work):
        drawn = list(tasks(domain, label, KIND, n))
        for each, score in ways.items():
            known, unknown = ([score(vec, t, getattr(t, rows)) for t in drawn] for rows in ("known", "unknown"))
            scores[each][domain] = Scored(np.array(known), np.array(unknown))
        for which, head, views in zip(
            ours,
            (Prototypes(), TableRidge(matches, whiten=whiten([name]))),
            (Features(vec), numbered(vec)),
            strict=True,
        ):
            rates = [counted(head, views, label, t) for t in drawn]
            false, caught = (np.array([each[what][0] for each in rates]) / 100 for what in ("false", "caught"))
            ours[which][domain] = [(false, caught)]
    by_hand = (fixed(scores["cosine"], alone=True), fixed(scores["cosine"], alone=False))
    return dict(zip(METHODS, (*by_hand, fixed(scores["neighbours"], alone=False), *ours.values()), strict=True))


def rows_of(name: str, found: dict[str, dict[str, list[tuple[Array, Array]]]]) -> list[dict[str, Any]]:
    rows = []
    for method, domains in found.items():
        means = {domain: [100 * false.mean() for false, _ in pairs] for domain, pairs in domains.items()}
        every = np.concatenate(list(means.values()))
        for domain in ("all", *domains):
            pairs = [pair for each, some in domains.items() if domain in ("all", each) for pair in some]
            false, caught = (100 * np.concatenate(each) for each in zip(*pairs, strict=True))
            rates = every if domain == "all" else np.array(means[domain])
            rows.append(
                {
                    "encoder": Path(name).stem,
                    "method": method,
                    "domain": domain,
                    "false unknowns %": float(false.mean()),
                    "lowest and highest mean": f"{rates.min():.1f} to {rates.max():.1f}",
                    "tasks: 10 % quantile": float(np.quantile(false, 0.1)),
                    "tasks: 90 % quantile": float(np.quantile(false, 0.9)),
                    "caught %": float(caught.mean()),
                }
            )
    return rows


def draw(found: dict[str, dict[str, list[tuple[Array, Array]]]], path: Path) -> None:
    """A dot is a domain, or a pair of domains; readable on light and dark pages."""
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "glocal", "font.family": "sans-serif"}
    figure, axis = plt.subplots(figsize=(8, 3.2), layout="constrained")
    rng, names = np.random.default_rng(0), list(METHODS)
    for row, name in enumerate(reversed(names)):
        pairs = [pair for some in found[name].values() for pair in some]
        rates = np.array([100 * false.mean() for false, _ in pairs])
        caught = 100 * float(np.mean([each.mean() for _, each in pairs]))
        height = row + rng.uniform(-0.22, 0.22, len(rates))
        axis.scatter(rates, height, s=14, color=METHODS[name], alpha=0.75, linewidths=0)
        axis.text(1.02, row, f"{caught:.0f} %", transform=axis.get_yaxis_transform(), color=GREY, va="center")
    axis.text(1.02, len(names) - 0.4, "caught", transform=axis.get_yaxis_transform(), color=GREY, va="bottom")
    axis.axvline(100 * TARGET, color="#d9480f", linewidth=1)
    axis.set_yticks(range(len(names)), names[::-1])
    axis.set_xlim(-2, 100)
    axis.set_ylim(-0.5, len(names) - 0.5)
    axis.set_xlabel("known photos called unknown, in % (target: 5)")
    axis.tick_params(colors=GREY, length=0)
    axis.xaxis.label.set_color(GREY)
    for spine in axis.spines.values():
        spine.set_color(GREY if spine.spine_type == "bottom" else "none")
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoders", nargs="+")
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--work", type=Path, default=Path("encoders-work"))
    parser.add_argument("--out", type=Path, default=Path("docs"))
    given = parser.parse_args()
    every = {name: measured(name, given.work, given.tasks) for name in given.encoders}
    rows = [row for name, found in every.items() for row in rows_of(name, found)]
    write_table(given.out / "results/data/against-cutoffs.csv", rows)
    draw(every[given.encoders[0]], given.out / "pictures/against-cutoffs.svg")


if __name__ == "__main__":
    main()
