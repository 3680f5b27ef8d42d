"""Tables of a comparison: intervals, paired differences, ranks, published numbers.

Transductive methods, which see all queries of a task at once, stand in a table of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glocal import __version__
from glocal.common.files import write_text
from glocal.research.data.episodes import unknown_share
from glocal.research.engine.compare import Conditions, ModelComparison
from glocal.research.engine.evaluate import Rows
from glocal.research.engine.named_models import NamedModel
from glocal.research.metrics import METRICS, mean_ci, mean_ranks, paired_difference
from glocal.research.report.published import CAPTION, about, published_beside
from glocal.research.report.table import Row, Table, to_csv, to_json, to_latex, to_markdown

SUFFIXES = {"markdown": ".md", "latex": ".tex", "csv": ".csv"}
COMPARED = ("acc", "auroc")  # metrics with differences, ranks and published numbers


@dataclass(frozen=True)
class Result:
    """One table and what it was measured on."""

    table: Table
    measured: Conditions
    tasks: int
    seed: int
    fingerprint: str  # of the task list
    transductive: bool

    def to_json(self) -> dict[str, Any]:
        """Table and task list as plain values."""
        return {
            "spec": asdict(self.measured.spec),
            "unknown_share": unknown_share(self.measured.spec),
            "support_views": self.measured.support_views,
            "tasks": self.tasks,
            "seed": self.seed,
            "tasks_fingerprint": self.fingerprint,
            "transductive": self.transductive,
            **to_json(self.table),
        }


def tables_of(comparison: ModelComparison) -> list[Result]:
    """An inductive and a transductive table for each list of tasks, as far as there are such methods."""
    tables: list[Result] = []
    for on, evaluations in zip(comparison.conditions, comparison.evaluations, strict=True):
        rows = {name: evaluation.rows for name, evaluation in evaluations.items()}
        fingerprint = next(iter(evaluations.values())).tasks
        tables += results(
            comparison.models,
            rows,
            on,
            reference=comparison.reference,
            seed=comparison.seed,
            fingerprint=fingerprint,
        )
    return tables


def comparison_json(comparison: ModelComparison) -> dict[str, Any]:
    """Models, data, task lists and tables as plain values."""
    on = comparison.conditions[0]
    return {
        "version": __version__,
        "dataset": on.dataset,
        "split": on.split,
        "manifest": comparison.data.manifest,
        "reference": comparison.reference,
        "models": [
            {"name": m.name, "method": m.method, "open_score": m.score, "model": m.identity} for m in comparison.models
        ],
        "tables": [result.to_json() for result in tables_of(comparison)],
    }


def write_comparison(comparison: ModelComparison, out: Path, runs: Sequence[str]) -> None:
    """compare.json, .md, .tex and .csv; the JSON names the ``runs`` too."""
    write_text(out / "compare.json", json.dumps(comparison_json(comparison) | {"runs": runs}, indent=1) + "\n")
    for kind, suffix in SUFFIXES.items():
        write_text((out / "compare").with_suffix(suffix), to_text(kind, tables_of(comparison)))


def results(
    models: Sequence[NamedModel],
    rows: Mapping[str, Rows],
    on: Conditions,
    *,
    reference: str,
    seed: int,
    fingerprint: str,
) -> list[Result]:
    """The inductive table, then the transductive one, as far as there are such methods."""
    measured = []
    for transductive in (False, True):
        group = [each for each in models if each.model.method.transductive == transductive]
        if not group:
            continue
        guest = [each for each in models if each.name == reference and each not in group]
        table = _table([*guest, *group], rows, on, reference, fingerprint, transductive)
        count = len(next(iter(rows[group[0].name].values())))
        measured.append(Result(table, on, count, seed, fingerprint, transductive))
    return measured


def _table(
    group: Sequence[NamedModel],
    rows: Mapping[str, Rows],
    on: Conditions,
    reference: str,
    fingerprint: str,
    transductive: bool,
) -> Table:
    measured = [metric for metric in METRICS if all(metric in rows[each.name] for each in group)]
    compared = [metric for metric in COMPARED if metric in measured]
    places = {
        metric: mean_ranks(
            [rows[each.name][metric] for each in group], higher_is_better=METRICS[metric].higher_is_better
        )
        for metric in compared
    }
    lines = []
    for i, each in enumerate(group):
        ours, base, beside = rows[each.name], rows[reference], published_beside(each, on)
        guest = each.model.method.transductive != transductive
        note = [about(each), f"{'not ' if transductive else ''}transductive, for reference" if guest else ""]
        note += ["" if beside is None else beside.note, _seen(each, on)]
        lines.append(
            Row(
                each.name,
                {metric: mean_ci(ours[metric]) for metric in measured},
                "; ".join(part for part in note if part),
                {} if each.name == reference else {m: paired_difference(ours[m], base[m]) for m in compared},
                open_score=each.score,
                rank={m: float(places[m][i]) for m in compared} if len(group) > 1 else {},
                published={} if beside is None else {m: beside.values[m] for m in compared if m in beside.values},
            )
        )
    return Table(
        _title(on, transductive),
        measured,
        lines,
        reference=reference,
        sign_test=True,
        caption=_caption(on, fingerprint, paper=any(row.published for row in lines)),
    )


def _title(on: Conditions, transductive: bool) -> str:
    spec = on.spec
    title = f"{spec.way}-way {spec.shot}-shot on {on.name}/{on.split}, {spec.unknown_way} unknown classes"
    if (share := round(100 * unknown_share(spec))) != 50:
        title += f", {share} % of the queries unknown"
    return title + (", transductive: queries see each other" if transductive else "")


def _caption(on: Conditions, fingerprint: str, *, paper: bool) -> str:
    spec = on.spec
    known, unknown = spec.way * spec.query, spec.unknown_way * spec.unknown_query
    caption = f"{known} known + {unknown} unknown queries per task ({100 * unknown_share(spec):.1f} % unknown), "
    caption += f"tasks {fingerprint[:12]}."
    if on.support_views > 1:
        caption += f" Support pictures enter under {on.support_views} views."
    return f"{caption} {CAPTION}" if paper else caption


def _seen(each: NamedModel, on: Conditions) -> str:
    """A number on classes that a model was trained on tells nothing; say so beside it."""
    data = each.model.record.get("data") or {}
    seen = set(data.get("classes", ())) & set(on.classes) if data.get("dataset") == on.dataset else set()
    return f"was trained on {len(seen)} of these {len(on.classes)} classes" if seen else ""


def to_text(kind: str, tables: Sequence[Result]) -> str:
    """All tables; ``kind`` is a key of SUFFIXES."""
    if kind == "csv":
        return to_csv([(result.table, _front(result)) for result in tables])
    make = {"markdown": to_markdown, "latex": to_latex}[kind]
    return "\n".join(make(result.table) for result in tables)


def _front(result: Result) -> dict[str, Any]:
    spec = result.measured.spec
    share, transductive = unknown_share(spec), int(result.transductive)
    return {"way": spec.way, "shot": spec.shot, "unknown_share": share, "transductive": transductive}
