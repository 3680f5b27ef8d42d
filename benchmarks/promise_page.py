"""The page of benchmarks/promise.py: tables, the goals and whether they are met, a reliability plot.

    python benchmarks/promise_page.py [docs/results/promise.json]

writes promise.md, promise.png and promise.svg beside the record again, without measuring anything.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from glocal_runtime.files import replacing, write_text

HEADS = {"photos-gel": "GEL", "photos-protonet": "cosine prototypes"}
GEL, PLAIN = HEADS
PROMISES = (0.05, 0.10)  # of the tables
CLOSE = 0.02  # goal: mean achieved rate this close to the promised one at 5-shot and more
STEADY = ("5-way 5-shot", "5-way 10-shot", "20-way 5-shot")  # the settings with 5 shots and more
HISTORY = (  # what a reader must know to judge how blind the test was
    "None of these classes trained anything or chose between settings; train and validation classes did. They were",
    "looked at twice, though: an earlier head was measured in four of the ten settings, caught 0.2 to 1.2 points fewer",
    "unknowns on Caltech photos than cosine prototypes at the same rate, and was replaced by this one, which the",
    "validation classes chose.",
)
TITLES = {
    "caltech-photos": "Caltech photos, 25 test classes",
    "cifar-fs": "CIFAR-FS, 20 test classes: 32-pixel pictures, a shift in domain",
}


def percent(x: dict[str, float], form: str = ".1f") -> str:
    return f"{100 * x['mean']:{form}} [{100 * x['low']:{form}}, {100 * x['high']:{form}}]"


def line_of(found: dict[str, Any], head: str, promise: float) -> dict[str, Any]:
    line: dict[str, Any] = next(line for line in found[head]["lines"] if line["promised"] == promise)
    return line


def markdown(record: dict[str, Any]) -> str:
    lines = [
        "# Is the promise kept?",
        "",
        "Every task gets its threshold from its own support photos; promised is the share of known photos that may",
        "be called unknown. 95 % intervals by a bootstrap over classes, because the tasks reuse few photos. *Caught at",
        "the promised rate* moves all thresholds of a head together until exactly the promised share is false: it",
        "compares the two heads at the same achieved rate, on the same tasks.",
        "",
        *HISTORY,
        "",
        f"```sh\n{record['command']}\n```",
        "",
        f"{record['tasks']} tasks per setting, seed {record['seed']}, {' and '.join(HEADS)} as shipped. All numbers in "
        "percent.",
        "",
        "## The goals",
        "",
        *goals(record["results"]["caltech-photos"]),
        "",
        *shifted(record["results"]["cifar-fs"]),
        "",
        "![Promised against achieved](promise.svg)",
    ]
    for name, settings in record["results"].items():
        lines += ["", f"## {TITLES[name]}", "", *promised_table(settings), "", *quality_table(settings)]
        lines += ["", *warning_table(settings)]
    return "\n".join([*lines, ""])


def goals(settings: dict[str, Any]) -> list[str]:
    """One line each, from the numbers."""
    off = {
        (s, p): line_of(settings[s], GEL, p)["achieved"]["mean"] - p for s in STEADY for p in PROMISES if s in settings
    }
    ratio = {(s, p): line_of(found, GEL, p)["achieved"]["mean"] / p for s, found in settings.items() for p in PROMISES}
    more = {
        (s, p): found["gel_minus_prototypes"][f"caught at {p:g}"] for s, found in settings.items() for p in PROMISES
    }
    far = [f"{s} at {100 * p:g} % ({100 * x:+.1f})" for (s, p), x in off.items() if abs(x) > CLOSE]
    double = [f"{s} at {100 * p:g} % ({x:.1f} times)" for (s, p), x in ratio.items() if x > 2]
    sure = [key for key, x in more.items() if x["low"] > 0]
    less = [f"{s} at {100 * p:g} % ({percent(x, '+z.1f')})" for (s, p), x in more.items() if x["mean"] <= 0]
    worst, highest = max(off.values(), key=abs), max(ratio.values())
    caught = f"{len(sure)} of {len(more)} differences are above zero by more than their interval"
    return [
        f"- Mean achieved rate within ±{100 * CLOSE:g} points of the promised one at 5-shot and more: "
        + (f"**no**, {', '.join(far)}." if far else f"**yes**, the largest gap is {100 * worst:+.1f} points."),
        "- Never more than double in any setting: "
        + (f"**no**, {', '.join(double)}." if double else f"**yes**, at most {highest:.2f} times the promise."),
        "- More unknowns caught than by cosine prototypes at the same achieved rate: "
        + (f"**not everywhere**, {', '.join(less)}; " if less else "**yes**, in every setting at both rates; ")
        + f"{caught}.",
    ]


def shifted(settings: dict[str, Any]) -> list[str]:
    """The same in words for pictures unlike those the heads know."""
    five = [line_of(found, GEL, PROMISES[0]) for found in settings.values()]
    achieved, caught = (span([line[name]["mean"] for line in five]) for name in ("achieved", "caught"))
    told = span(
        [found[GEL]["told"]["classes more alike than any the head knows"] for found in settings.values()], ".0f"
    )
    paired = [
        found["gel_minus_prototypes"][f"caught at {p:g}"]["mean"] for found in settings.values() for p in PROMISES
    ]
    return [
        "These goals are for photos. With CIFAR-FS pictures, unlike what the heads know, a promise of 5 % ends at",
        f"{achieved} % of false unknowns, and {caught} % of the unknowns are caught; at the same achieved rate GEL's",
        f"difference to cosine prototypes is {span(paired, '+z.1f')} points. Enroll warns: {told} % of the tasks are",
        "told that their classes look more alike than any the head knows.",
    ]


def span(values: list[float], form: str = ".1f") -> str:
    low, high = (f"{100 * x:{form}}" for x in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def promised_table(settings: dict[str, Any]) -> list[str]:
    lines = [
        "| setting | head | promised | achieved | 95 % of tasks | caught | caught at promised rate | GEL more |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for setting, found in settings.items():
        for promise in PROMISES:
            for head, title in HEADS.items():
                line = line_of(found, head, promise)
                low, _, high = line["tasks_between"]
                more = percent(found["gel_minus_prototypes"][f"caught at {promise:g}"], "+z.1f") if head == GEL else ""
                lines.append(
                    f"| {setting} | {title} | {100 * promise:g} | {percent(line['achieved'])} | "
                    f"{100 * low:.1f} to {100 * high:.1f} | {percent(line['caught'])} | "
                    f"{percent(line['caught_at_promised_rate'])} | {more} |"
                )
    return lines


def quality_table(settings: dict[str, Any]) -> list[str]:
    lines = ["ACC among the known classes and AUROC, in which no threshold is involved:", ""]
    lines += ["| setting | measure | GEL | cosine prototypes | GEL - prototypes, paired |", "|---|---|--:|--:|--:|"]
    for setting, found in settings.items():
        for name in ("acc", "auroc"):
            both = " | ".join(percent(found[head][name], ".2f") for head in HEADS)
            paired = percent(found["gel_minus_prototypes"][name], "+z.2f")
            lines.append(f"| {setting} | {name.upper()} | {both} | {paired} |")
    return lines


def warning_table(settings: dict[str, Any]) -> list[str]:
    """What enroll says with GEL, as a share of the tasks, and each sentence once."""
    kinds = list(next(iter(settings.values()))[GEL]["told"])
    lines = [
        "What enroll says (GEL, a promise of 5 %; share of the tasks), and how often the rate lies in the interval",
        "that it states (at 5 and at 10 %, allowing for the photos counted in one task):",
        "",
        f"| setting | any warning | {' | '.join(kinds)} | rate in the stated interval |",
        f"|---|{'--:|' * (len(kinds) + 2)}",
    ]
    examples: dict[str, str] = {}
    for setting, found in settings.items():
        gel = found[GEL]
        inside = " and ".join(f"{100 * line_of(found, GEL, p)['inside_stated_interval']:.0f}" for p in PROMISES)
        told = " | ".join(f"{100 * gel['told'][kind]:.0f}" for kind in kinds)
        lines.append(f"| {setting} | {100 * gel['warned']:.0f} | {told} | {inside} |")
        examples |= {kind: text for kind, text in gel["examples"].items() if kind not in examples}
    return [*lines, "", "One of each, as printed:", "", *(f"- {text}" for text in examples.values())]


def plot(results: dict[str, Any], out: Path) -> None:
    """Above: achieved by promised rate, one line for each setting.  Below: both heads at two rates with intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 9.5), layout="constrained")
    upper, lower = figure.subplots(2, 2, width_ratios=[6, 4], height_ratios=[5, 4], sharey="row")
    for (name, settings), above, below in zip(results.items(), upper, lower, strict=True):
        reliability(above, settings, title=TITLES[name].partition(":")[0])
        achieved(below, settings)
    upper[0].set_ylabel("GEL: known photos called unknown, %")
    lower[0].set_ylabel("known photos called unknown, %\n(95 % over classes)")
    lower[0].set_ylim(-0.4)
    figure.legend(*lower[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    for ending in ("png", "svg"):
        with replacing(out / f"promise.{ending}") as partial:
            figure.savefig(partial, format=ending, dpi=110, metadata={"Date": None} if ending == "svg" else None)


def reliability(ax: Any, settings: dict[str, Any], *, title: str) -> None:
    from glocal.report.plots import COLORS, INK, SOFT, STYLES

    promised = [100 * line["promised"] for line in next(iter(settings.values()))[GEL]["lines"]]
    span = np.linspace(0, max(promised), 200)
    ax.fill_between(span, span / 2, 2 * span, color=SOFT, alpha=0.12, linewidth=0, label="half to double")
    ax.plot(span, span, color=SOFT, linewidth=1, label="as promised")
    for i, (setting, found) in enumerate(settings.items()):
        mean = [100 * line["achieved"]["mean"] for line in found[GEL]["lines"]]
        color, style = COLORS[i % len(COLORS)], STYLES[i % len(STYLES)]
        ax.plot(promised, mean, marker="o", ms=4, color=color, linestyle=style, label=setting)
    ax.set_title(title, color=INK)
    ax.set(xlabel="promised, %", xlim=(0, max(promised) * 1.03), ylim=(0, max(promised) * 1.3))
    ax.legend(loc="upper left", frameon=False, fontsize=9)
    tidy(ax)


def achieved(ax: Any, settings: dict[str, Any]) -> None:
    from glocal.report.plots import BLUE, SOFT, VERMILLION

    for promise, style in zip(PROMISES, ("-", "--"), strict=True):
        ax.axhline(100 * promise, color=SOFT, linestyle=style, linewidth=1.2)
    for h, (head, color, marker) in enumerate(zip(HEADS, (BLUE, VERMILLION), ("o", "s"), strict=True)):
        for p, promise in enumerate(PROMISES):
            at = np.arange(len(settings)) + (-0.24, 0.08)[p] + 0.14 * h
            lines = [line_of(found, head, promise)["achieved"] for found in settings.values()]
            mean, low, high = (100 * np.array([line[end] for line in lines]) for end in ("mean", "low", "high"))
            label, fill = f"{HEADS[head]}, promised {100 * promise:g} %", color if p == 0 else "white"
            bars = [mean - low, high - mean]
            ax.errorbar(at, mean, bars, fmt=marker, color=color, mfc=fill, ms=6, capsize=2.5, label=label)
    ax.set_xticks(range(len(settings)), [s.replace(", ", ",\n").replace("way ", "way\n") for s in settings])
    tidy(ax)


def tidy(ax: Any) -> None:
    from glocal.report.plots import GRID

    ax.grid(axis="y", color=GRID)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def write_page(record: dict[str, Any], out: Path) -> None:
    write_text(out / "promise.md", markdown(record))
    plot(record["results"], out)
    print(f"written: {out / 'promise.md'}")


def main() -> None:
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/results/promise.json")
    if path.is_file():
        write_page(json.loads(path.read_text("utf-8")), path.parent)
    else:
        print(f"skipped: there is no {path}; benchmarks/promise.py writes it")


if __name__ == "__main__":
    main()
