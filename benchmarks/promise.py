"""Is the promise kept on photos nobody has seen?  Thirteen domains, each measured with all that is fitted without it.

    GLOCAL_DATA=DIR python benchmarks/promise.py [--tasks 100] [--work DIR] [--encoder fast] [--out docs/results/data]

Every task gets its threshold from its own support alone, then is counted: known photos called unknown, unknown ones
caught, names right.  Beside the ridge head cosine prototypes, on the same encoder and tasks with the same calibration.
The whitening never saw the domain; the constants for one photo and the factor of the tail are fitted again without it.

Finished parts of a domain are kept in --work and not measured again: delete the files of what has changed.  Writes
threshold-in-use.csv and threshold-by-domain.csv, and prints the table of docs/results/promise.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from domains import domains, head_without
from fit_constants import fitted_without, gather
from tasks import ONE_BESIDE, counted, summary, tasks, write_table

from glocal.common.files import write_text
from glocal.recognizer.calibration import threshold as module

EQUAL = [f"5 x {k}" for k in (1, 2, 3, 5, 10, 20)] + [f"{n} x {k}" for n in (2, 20) for k in (2, 3, 5, 10)]
RIDGE_ALONE = {  # kind -> known unknowns, confirmed photos
    "5 x 1 to 10": (0, 0),
    ONE_BESIDE: (0, 0),
    "20 x 1 to 10": (0, 0),
    "50 x 5": (0, 0),
    "5 x 5, 20 known unknowns": (20, 0),
    "5 x 5, 10 confirmed": (0, 10),
    "5 x 5, 30 confirmed": (0, 30),
    "5 x 5, all others confirmed": (0, 100),
}
PAGE = [kind for kind in (*EQUAL, *RIDGE_ALONE) if kind not in ("2 x 3", "20 x 3", "20 x 1 to 10") and "," not in kind]


def measure_kind(head: Any, views: Any, label: Any, name: str, kind: str, n: int) -> dict[str, Any]:
    """By number: its values over the tasks."""
    aside, confirmed = RIDGE_ALONE.get(kind, (0, 0))
    shape = kind.partition(",")[0]
    rows = [
        counted(head, views, label, each, aside=aside, confirmed=confirmed) for each in tasks(name, label, shape, n)
    ]
    return {number: [row[number] for row in rows] for number in rows[0]} if rows else {}


def kept_or(kept: Path, measured: Callable[[], Any]) -> Any:
    """What an earlier run measured, or now."""
    if not kept.exists():
        write_text(kept, json.dumps(measured()))
    return json.loads(kept.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results/data"))
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--work", type=Path, default=Path("promise-work"))
    parser.add_argument("--encoder", default="fast")
    given = parser.parse_args()
    every = domains(given.encoder, given.work)
    gathered = gather(every, given.work / f"{given.encoder}-constants.json")
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for name, domain in every.items():
        module.FITTED = fitted_without(name, gathered)
        for kinds, which in (((*EQUAL, *RIDGE_ALONE), "ridge"), ((*EQUAL, "5 x 1 to 10"), "protonet")):
            head, views = head_without(every, name, which)
            for kind in kinds:
                kept = given.work / f"{given.encoder}-{given.tasks}-{which}-{name}-{kind}.json"
                many = kind.startswith(("20", "50")) and domain.classes >= 40
                n = max(6, given.tasks // 5) if many else given.tasks
                part = kept_or(kept, partial(measure_kind, head, views, domain.label, name, kind, n))
                if part:
                    found.setdefault((kind, which), {})[name] = part
        print(name, flush=True)
    rows = []
    for (kind, which), parts in found.items():
        shown = "ridge" if which == "ridge" else "prototypes"
        rows.append({"task (classes x photos per class)": kind, "head": shown, **summary(list(parts.values()))})
    write_table(given.out / "threshold-in-use.csv", rows)
    kinds = [f"5 x {k}" for k in (1, 2, 3, 5, 10)]
    by_domain = []
    for name in every:
        row: dict[str, Any] = {"domain": name}
        for kind in kinds:
            part = found[kind, "ridge"][name]
            row[f"{kind}: false unknowns %"] = float(np.mean(part["false"], axis=0)[0])
            row[f"{kind}: caught %"] = float(np.mean(part["caught"], axis=0)[0])
        by_domain.append(row)
    write_table(given.out / "threshold-by-domain.csv", by_domain)
    print(page_table({(row["task (classes x photos per class)"], row["head"]): row for row in rows}))


def page_table(rows: dict[Any, Any]) -> str:
    lines = [
        "| classes x photos per class | false unknowns | caught | caught in the lowest tenth of tasks "
        "| prototypes: false, caught | domains within 1.5 / 3 points |",
        "|---|---|---|---|---|---|",
    ]
    for kind in PAGE:
        ours, theirs = rows[kind, "ridge"], rows.get((kind, "prototypes"))
        numbers = [f"{ours[name]:.1f}" for name in ("false unknowns %", "caught in use %", "lowest tenth of tasks %")]
        beside = "" if theirs is None else f"{theirs['false unknowns %']:.1f}, {theirs['caught in use %']:.1f}"
        near = f"{ours['domains within 1.5']} / {ours['domains within 3']} of {ours['domains']}"
        lines.append(f"| {kind} | " + " | ".join([*numbers, beside, near]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
