"""The pages themselves: file name -> Markdown."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from glocal.methods import METHODS, SWITCHES, Method
from glocal.metrics import METRICS
from glocal.ops.confidence import OPEN_SCORES
from glocal.report.method_pages.docstring import explain
from glocal.report.method_pages.ours import Ours, read_results
from glocal.report.method_pages.records import RECORDS, MethodRecord, Paper
from glocal.report.published import TASKS, published
from glocal_runtime.errors import DataError

COMMAND = "python -m glocal.report.method_pages docs/methods"
GENERATED = f"<!-- Written by {COMMAND}; change the docstring or the record instead. -->"
EMPTY = "–"
DIM = 64  # of the example that defaults are read from; none of them depends on it
MAIN = ("acc", "auroc")


def pages(results: Path) -> dict[str, str]:
    """Every method's page and the index, README.md; our numbers come from the files in ``results``."""
    missing = [name for name in METHODS if name not in RECORDS]
    if missing:
        raise DataError(
            f"every method needs a record, and {', '.join(missing)} has none; add it to RECORDS in "
            "glocal/report/method_pages/records.py"
        )
    ours = read_results(results)
    return {"README.md": _index()} | {f"{name}.md": _page(name, ours) for name in METHODS}


def _page(name: str, ours: Sequence[Ours]) -> str:
    record, method, file = RECORDS[name], METHODS[name](DIM), METHODS[name].__module__
    explained = explain(sys.modules[file].__doc__ or "")
    parts = [
        f"# {record.title}",
        GENERATED,
        explained.idea,
        _facts(name, record, method, file),
        "## How it works",
        explained.body,
        "## Differs from the paper",
        explained.differs,
        "## Settings",
        _settings(name, method),
        "## Open scores",
        _open_scores(method),
        "## Published numbers",
        _published(record),
        "## Our numbers",
        _our_numbers(record, [row for row in ours if (row.method, row.transductive) == (name, method.transductive)]),
    ]
    return "\n\n".join(parts) + "\n"


def _index() -> str:
    rows = []
    for name in METHODS:
        record, paper = RECORDS[name], RECORDS[name].paper
        rows.append(
            [
                f"[{record.title}]({name}.md)" + (" (reconstruction)" if record.reconstruction else ""),
                f"`{name}`",
                f"{paper.authors}, {paper.title}" if paper else "ours",
                str(paper.year) if paper else EMPTY,
                paper.venue if paper else EMPTY,
                "yes" if METHODS[name](DIM).transductive else "no",
                record.learns or "nothing",
            ]
        )
    parts = [
        "# Methods",
        GENERATED,
        "What each one computes, where it departs from its paper, and its numbers, published and ours.\n"
        "A transductive method sees all queries of a task at once. What it learns, it learns beside its backbone.",
        _table(["Method", "Name", "Paper", "Year", "Venue", "Transductive", "Learns"], rows),
        f"These pages are made from the code: `{COMMAND}`.\n"
        "See also [Add a method](../how-to/add-a-method.md) and [Compare methods](../how-to/compare-methods.md).",
    ]
    return "\n\n".join(parts) + "\n"


def _facts(name: str, record: MethodRecord, method: Method, file: str) -> str:
    path = f"src/{file.replace('.', '/')}.py"
    needs = ["the base classes"] if method.needs_base else []
    needs += ["in training, support of the unknown classes too (the mirrored task)"] if method.needs_mirror else []
    needs += [f"tasks of at least {method.min_way} classes"] if method.min_way > 1 else []
    rows = [
        ["Name", f"`{name}`, in [{path}](../../{path})"],
        ["Paper", _cite(record.paper) if record.paper else "none, ours"],
        ["Queries", "seen all at once (transductive)" if method.transductive else "judged one by one"],
        ["Learns", record.learns or "nothing of its own"],
        ["Needs", "; ".join(needs) or "support and queries alone"],
    ]
    rows += [["Reconstruction", record.reconstruction]] if record.reconstruction else []
    return _table(["", ""], rows)


def _cite(paper: Paper) -> str:
    cited = f"{paper.authors}, *{paper.title}*, {paper.venue} {paper.year}"
    cited += f", [arXiv:{paper.arxiv}](https://arxiv.org/abs/{paper.arxiv})" if paper.arxiv else ""
    return cited + (f", [doi:{paper.doi}](https://doi.org/{paper.doi})" if paper.doi else "")


def _settings(name: str, method: Method) -> str:
    """None leaves the value to other settings; what it comes to by default is shown beside it."""
    rows = []
    for setting, parameter in inspect.signature(METHODS[name]).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            value = f"`{parameter.default!r}`"
            chosen = getattr(method, setting, None)
            if parameter.default is None and chosen is not None:
                value += f", which comes to `{chosen!r}` with the other defaults"
            rows.append([f"`{setting}`", value])
    rows += [[f"`{switch}`, as for every method", "`False`"] for switch in SWITCHES]
    return _table(["Setting", "Default"], rows)


def _open_scores(method: Method) -> str:
    own = [score for score in method.score_names if score not in OPEN_SCORES]
    shared = [score for score in method.score_names if score in OPEN_SCORES]
    told = [f"Its own: {_codes(own)}."] if own else []
    told += [f"On the logits, as for every method: {_codes(shared)}."] if shared else []
    return " ".join([*told, f"Reported unless `open_score` names another: `{method.open_score}`."])


def _published(record: MethodRecord) -> str:
    rows = [row for row in published() if row.method in record.published]
    if not rows:
        return "None in the tables of the GEL paper."
    metrics = [metric for metric in METRICS if any(metric in row.values for row in rows)]
    noted, several = any(row.note for row in rows), len(record.published) > 1
    head = ["Table", "Data", *(["Row"] * several), "Shot", "Backbone", *(METRICS[metric].title for metric in metrics)]
    lines = [
        [row.table, row.dataset, *([f"`{row.method}`"] * several), str(row.shot), row.backbone]
        + [_number(vars(row.values[metric])) if metric in row.values else EMPTY for metric in metrics]
        + [row.note] * noted
        for row in rows
    ]
    lead = f"From the GEL paper and its supplement: percent, mean ± 95 % interval over {TASKS} tasks."
    return f"{lead}\n\n{_table([*head, *(['Note'] * noted)], lines)}"


def _our_numbers(record: MethodRecord, ours: Sequence[Ours]) -> str:
    if not ours:
        return "No result of ours yet."
    parts = ["Percent, mean ± 95 % interval. All metrics, paired differences and ranks stand in the linked files."]
    parts += [f"Ours is a reconstruction: {record.reconstruction}."] if record.reconstruction else []
    for file, rows in groupby(ours, key=lambda row: row.file):
        here = list(rows)
        readable = file.with_suffix(".md") if file.with_suffix(".md").exists() else file
        parts.append(f"[{file.stem}](../{file.parent.name}/{readable.name}), {_plain(here[0].data)}:")
        lines = [
            [_plain(row.task), _plain(row.name), f"`{row.open_score}`"]
            + [_number(row.values[metric]) if metric in row.values else EMPTY for metric in MAIN]
            + [_plain(row.note)]
            for row in here
        ]
        titles = [METRICS[metric].title for metric in MAIN]
        parts.append(_table(["Task", "Model", "Open score", *titles, "Note"], lines))
        captions = dict.fromkeys((row.task, row.caption) for row in here)
        parts.append("\n".join(f"- {_plain(task)}: {_plain(caption)}" for task, caption in captions))
    return "\n\n".join(parts)


def _number(value: Any) -> str:
    mean, half = value["mean"], value["half"]
    if mean is None:
        return EMPTY
    return f"{100 * mean:.2f}" + ("" if half is None else f" ± {100 * half:.2f}")


def _codes(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_|~\[\]<>$])", r"\\\1", " ".join(text.split()))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are Markdown already."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])
