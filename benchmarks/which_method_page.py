"""docs/results/which-method.md and its plot from docs/results/data/which-method.csv.

    python benchmarks/which_method_page.py

Photo heads that learn were not trained again: for Caltech the page has what its comparison measured on the same tasks.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from matplotlib.figure import Figure

from glocal.common.files import write_text
from glocal.research.methods import METHODS
from glocal.research.report.plots import COLORS, GRID, SOFT

RESULTS = Path(__file__).parent.parent / "docs/results"
TABLE = RESULTS / "data/which-method.csv"
DATA = {
    "cifar-fs": "CIFAR-FS, full width",
    "tiered-64": "tiered-64",
    "caltech-photos": "Caltech photos",
    "photo-domains": "12 photo domains",
}
TRAINED_ON, PHOTOS = ("cifar-fs", "tiered-64"), ("caltech-photos", "photo-domains")
BEFORE = {"frozen-gel": "gel", "gel": ""}  # names in the comparison on Caltech, whose gel is our form
SHOTS = ("1", "5")

Table: TypeAlias = "Mapping[tuple[str, str, str], Mapping[str, str]]"  # (data, shot, method) -> line of the CSV


def read(path: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return {(line["data"], line["shot"], line["method"]): line for line in csv.DictReader(file)}


def rank(table: Table, method: str, shots: Iterable[str], data: Iterable[str]) -> tuple[float, float] | None:
    """Mean over data sets and shots, and half its 95 % interval; None unless the method is in all of them."""
    lines = [table.get((each, shot, method)) for each in data for shot in shots]
    if None in lines:
        return None
    half = [(float(line["rank_high"]) - float(line["rank_low"])) / 2 for line in lines if line]
    return sum(float(line["rank"]) for line in lines if line) / len(lines), math.hypot(*half) / len(lines)


def methods_of(table: Table, *, transductive: bool) -> list[str]:
    """The best first, by the data on which all methods were measured."""
    names = dict.fromkeys(key[2] for key, line in table.items() if line["transductive"] == str(int(transductive)))
    return sorted(names, key=lambda name: rank(table, name, SHOTS, TRAINED_ON) or (99.0, 0.0))


def caltech_before() -> dict[tuple[str, str], str]:
    """(shot, method) -> ACC / AUROC of heads that were trained for the comparison on Caltech."""
    found = {}
    for shot in SHOTS:
        there = json.loads((RESULTS / f"data/caltech-photos-methods-{shot}shot.json").read_text("utf-8"))
        for row in there["tables"][0]["rows"]:
            acc, auroc = (100 * row["values"][metric]["mean"] for metric in ("acc", "auroc"))
            found[shot, row["name"]] = f"{acc:.1f} / {auroc:.1f} †"
    return found


def rows_of(table: Table, shot: str, names: Iterable[str], before: Mapping[tuple[str, str], str]) -> list[str]:
    lines = [
        f"| {shot}-shot | rank, CIFAR-FS and tiered-64 | rank, photos | {' | '.join(DATA.values())} | ms per query |",
        "|---" * (len(DATA) + 4) + "|",
    ]
    for name in names:
        places = [rank(table, name, (shot,), data) for data in (TRAINED_ON, PHOTOS)]
        cells = ["–" if place is None else f"{place[0]:.1f} ± {place[1]:.1f}" for place in places]
        for data in DATA:
            line = table.get((data, shot, name))
            kept = before.get((shot, BEFORE.get(name, name)), "–") if data == "caltech-photos" else "–"
            cells.append(kept if line is None else f"{float(line['acc']):.1f} / {float(line['auroc']):.1f}")
        first = next(table[data, shot, name] for data in DATA if (data, shot, name) in table)
        lines.append(f"| `{name}` | {' | '.join(cells)} | {float(first['ms_per_query']):.2f} |")
    return [*lines, ""]


def plot(table: Table, names: list[str], path: Path) -> None:
    figure = Figure(figsize=(9.5, 0.32 * len(names) + 1.3), layout="constrained")
    panels: Any = figure.subplots(1, len(SHOTS), sharey=True)
    for axes, shot in zip(panels, SHOTS, strict=True):
        for color, marker, (data, title) in zip(COLORS, "os^D", DATA.items(), strict=False):
            there = [(float(table[data, shot, name]["auroc"]), i) for i, name in enumerate(names)
                     if (data, shot, name) in table]  # fmt: skip
            axes.scatter(*zip(*there, strict=True), color=color, marker=marker, label=title, s=34, zorder=2)
        axes.set(title=f"{shot}-shot", xlabel="AUROC, %", yticks=range(len(names)), yticklabels=names)
        axes.grid(color=GRID)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=SOFT)
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(DATA), frameon=False)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def advice(table: Table, names: list[str]) -> str:
    """The sentence on top: what is best on photos without training, and what training gains where it can be had."""
    on_photos = {name: place[0] for name in names if (place := rank(table, name, SHOTS, PHOTOS))}
    best = min(on_photos, key=lambda name: on_photos[name])
    places = {name: place for name in names if (place := rank(table, name, SHOTS, TRAINED_ON))}
    leader, half = places[names[0]]
    ahead = [f"`{name}`" for name, (place, own) in places.items() if place - own <= leader + half]
    photos, few, more = (
        gain(table, name, shot, data)
        for name, shot, data in ((best, "5", PHOTOS[1:]), (names[0], "1", TRAINED_ON), (names[0], "5", TRAINED_ON))
    )
    return (
        f"**For photos of your own take `{best}`: it needs no training. With five photos per class it has "
        f"{photos:+.1f} AUROC beside cosine prototypes over twelve domains. Where there are base classes to train on, "
        f"{' and '.join(ahead)} {'have' if ahead[1:] else 'has'} the best rank. There `{names[0]}` has {few:+.1f} "
        f"AUROC beside prototypes with one shot, and {more:+.1f} with five.**"
    )


def gain(table: Table, name: str, shot: str, data: Iterable[str]) -> float:
    """AUROC beside plain prototypes, the mean over data sets."""
    more = [float(table[d, shot, name]["auroc"]) - float(table[d, shot, "protonet"]["auroc"]) for d in data]
    return sum(more) / len(more)


def not_run(table: Table) -> list[str]:
    """Methods without a line on CIFAR-FS; `att-g` and `eol` stand there in one of their forms."""
    there = {method.removesuffix("-means").removesuffix("-ways") for data, _, method in table if data == "cifar-fs"}
    return [f"`{name}`" for name in METHODS if name not in there]


def few_unknown() -> str:
    """What transductive methods lose where a tenth of the queries is unknown."""
    there = json.loads((RESULTS / "data/tiered-64-methods-shares.json").read_text("utf-8"))["tables"]
    tables = [each for each in there if each["transductive"] and round(each["unknown_share"], 2) == 0.1]
    return "; ".join(
        f"`{row['name']}` {100 * row['difference']['auroc']['mean']:+.1f} at {each['spec']['shot']}-shot"
        for each in tables
        for row in each["rows"]
        if row["difference"]
    )


def page(table: Table) -> str:
    before = caltech_before()
    inductive, transductive = (methods_of(table, transductive=each) for each in (False, True))
    lines = [
        "# Which method?",
        "",
        advice(table, inductive),
        "",
        "ACC / AUROC in percent on frozen networks, 5 known and 5 unknown classes, all methods on the same tasks. "
        "A rank is the mean place by ACC and by AUROC, 1 the best, with a 95 % interval over tasks. It tells nothing "
        "of other training seeds. Milliseconds are those of the head on one core, without the network.",
        "",
        *rows_of(table, "1", inductive, before),
        *rows_of(table, "5", inductive, before),
        "![AUROC of each method on four kinds of data](which-method.png)",
        "",
        "- `gel` is the method as published, after a FEAT stage; `frozen-gel` is our form of it. Its 1-shot head of "
        "tiered-64 is the one that ships and has other settings than the others.",
        "- `ridge` is the recognizer's head. Its whitening, and what `knn` and `mahalanobis` take from base images, "
        "come from the base classes of the data; for all photos from Caltech's 60.",
        "- † Heads that learn have up to 53 MB on photos and do not ship. Caltech: an earlier run on the same tasks. "
        "Photo domains: not run (–).",
        "- One training seed.",
        *([f"- Not run on CIFAR-FS: {', '.join(not_run(table))}."] if not_run(table) else []),
        "",
        "## Methods that see all queries at once",
        "",
        "They learn from the queries of a task, half of which are unknown here, and cannot answer one photo. "
        f"**Where 10 % are unknown they lose AUROC against `snatcher-f` (tiered-64): {few_unknown()}.**",
        "",
        *rows_of(table, "1", transductive, before),
        *rows_of(table, "5", transductive, before),
        "Data: [which-method.csv](data/which-method.csv), by `python benchmarks/which_method.py WORK` and "
        "`python benchmarks/which_method_page.py`.",
        "",
        "Next: [which encoder](../which-encoder.md).",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    table = read(TABLE)
    write_text(RESULTS / "which-method.md", page(table))
    plot(table, methods_of(table, transductive=False), RESULTS / "which-method.png")


if __name__ == "__main__":
    main()
