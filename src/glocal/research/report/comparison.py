"""Several models on the same tasks, and the tables of that: intervals, paired differences, ranks, published numbers.

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
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.episodes import EpisodeSampler, EpisodeSpec, unknown_share, with_unknown_share
from glocal.research.data.registry import open_dataset
from glocal.research.engine.checkpoint import Model
from glocal.research.engine.distributed import joined
from glocal.research.engine.evaluate import Evaluation, Progress, evaluate_models
from glocal.research.engine.named_models import NamedModel, check_reference, load_models
from glocal.research.engine.row_store import Rows, RowStore
from glocal.research.metrics import METRICS, mean_ci, mean_ranks, paired_difference
from glocal.research.report.comparable import Conditions, about, published_beside, why_not
from glocal.research.report.html import to_html
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


@dataclass(frozen=True)
class Comparison:
    """What ``compare`` found: the tables, and the evaluation of each model on each task list."""

    models: Sequence[NamedModel]
    data: ClassDataset
    dataset: str
    split: str
    reference: str
    evaluations: Sequence[Mapping[str, Evaluation]]  # per task list, by the name of the model
    results: Sequence[Result]  # the tables

    def __repr__(self) -> str:
        names = ", ".join(model.name for model in self.models)
        return f"<Comparison of {names} on {self.dataset}/{self.split}: {len(self.results)} tables>"

    def _repr_html_(self) -> str:
        """For notebooks: the tables, differences to the reference under the values."""
        return f"<div>{''.join(to_html(result.table) for result in self.results)}</div>"

    def to_json(self) -> dict[str, Any]:
        """Models, data, task lists and tables as plain values."""
        return {
            "version": __version__,
            "dataset": self.dataset,
            "split": self.split,
            "manifest": self.data.manifest,
            "reference": self.reference,
            "models": [
                {"name": m.name, "method": m.method, "open_score": m.score, "model": m.identity} for m in self.models
            ],
            "tables": [result.to_json() for result in self.results],
        }

    def write(self, out: Path, **more: Any) -> None:
        """compare.json, .md, .tex and .csv; ``more`` goes into the JSON."""
        write_text(out / "compare.json", json.dumps(self.to_json() | more, indent=1) + "\n")
        for kind, suffix in SUFFIXES.items():
            write_text((out / "compare").with_suffix(suffix), to_text(kind, self.results))


def compare(
    models: Sequence[str] | Mapping[str, Model | str],
    dataset: ClassDataset | str | Path,
    *,
    split: str = "test",
    shots: Sequence[int] = (1, 5),
    way: int = 5,
    query: int = 15,
    unknown_way: int | None = None,
    unknown_shares: Sequence[float] | None = None,
    support_views: int = 1,
    tasks: int = 600,
    seed: int = 0,
    reference: str | None = None,
    keep: str | Path | None = None,
    skip_bad: bool = False,
    workers: int = 2,
    device: str = "auto",
    progress: Progress | None = None,
) -> Comparison:
    """Measure models on the same tasks; a table for each of ``shots`` and ``unknown_shares``.

    ``models`` are named as RUN, RUN:SCORE or LABEL=RUN:SCORE, or given by name.  ``keep`` is a folder for the rows of
    each model: what is there is read and not run again.
    """
    shape = (query, way if unknown_way is None else unknown_way, query)
    specs = [EpisodeSpec(way, shot, *shape) for shot in shots]
    if unknown_shares is not None:
        specs = [with_unknown_share(spec, share) for spec in specs for share in unknown_shares]
    named = load_models(models)
    base = check_reference(reference, named)
    data = dataset if isinstance(dataset, ClassDataset) else open_dataset(dataset, split, skip_bad=skip_bad)
    lists = [EpisodeSampler(data, spec, seed=seed).take(tasks, keep=False) for spec in specs]
    how: dict[str, Any] = {"support_views": support_views, "workers": workers, "progress": progress}
    store = RowStore(None if keep is None else Path(keep))
    with joined(device) as where:
        found = evaluate_models(named, data, lists, store=store, device=where, **how)
    name, tables = data.name if dataset is data else str(dataset), []
    for spec, each in zip(specs, found, strict=True):
        on = Conditions(name, split, data.classes, spec, support_views)
        rows = {label: evaluation.rows for label, evaluation in each.items()}
        tables += results(named, rows, on, reference=base, seed=seed, fingerprint=next(iter(each.values())).tasks)
    return Comparison(named, data, name, split, base, found, tables)


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
    found = []
    for transductive in (False, True):
        group = [each for each in models if each.model.method.transductive == transductive]
        if not group:
            continue
        guest = [each for each in models if each.name == reference and each not in group]
        table = _table([*guest, *group], rows, on, reference, fingerprint, transductive)
        count = len(next(iter(rows[group[0].name].values())))
        found.append(Result(table, on, count, seed, fingerprint, transductive))
    return found


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
    against = {each.name: why_not(each, on) for each in group}
    shared = [reason for reason in against[group[0].name] if all(reason in reasons for reasons in against.values())]
    lines = []
    for i, each in enumerate(group):
        ours, base, beside = rows[each.name], rows[reference], published_beside(each, on)
        own = [reason for reason in against[each.name] if reason not in shared]
        guest = each.model.method.transductive != transductive
        note = [about(each), f"{'not ' if transductive else ''}transductive, for reference" if guest else ""]
        note += [f"not comparable with the paper: {', '.join(own)}" if own else "", _seen(each, on)]
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
        caption=_caption(on, shared, fingerprint),
    )


def _title(on: Conditions, transductive: bool) -> str:
    spec = on.spec
    title = f"{spec.way}-way {spec.shot}-shot on {on.name}/{on.split}, {spec.unknown_way} unknown classes"
    if (share := round(100 * unknown_share(spec))) != 50:
        title += f", {share} % of the queries unknown"
    return title + (", transductive: queries see each other" if transductive else "")


def _caption(on: Conditions, shared: Sequence[str], fingerprint: str) -> str:
    spec = on.spec
    known, unknown = spec.way * spec.query, spec.unknown_way * spec.unknown_query
    caption = f"{known} known + {unknown} unknown queries per task ({100 * unknown_share(spec):.1f} % unknown), "
    caption += f"tasks {fingerprint[:12]}."
    if on.support_views > 1:
        caption += f" Support pictures enter under {on.support_views} views."
    if shared:
        caption += f" Not comparable with the paper: {', '.join(shared)}."
    return caption


def _seen(each: NamedModel, on: Conditions) -> str:
    """A number on classes that a model was trained on tells nothing; say so beside it."""
    data = each.model.record.get("data") or {}
    seen = set(data.get("classes", ())) & set(on.classes) if data.get("dataset") == on.dataset else set()
    return f"was trained on {len(seen)} of these {len(on.classes)} classes" if seen else ""


def to_text(kind: str, found: Sequence[Result]) -> str:
    """All tables; ``kind`` is a key of SUFFIXES."""
    if kind == "csv":
        return to_csv([(result.table, _front(result)) for result in found])
    make = {"markdown": to_markdown, "latex": to_latex}[kind]
    return "\n".join(make(result.table) for result in found)


def _front(result: Result) -> dict[str, Any]:
    spec = result.measured.spec
    share, transductive = unknown_share(spec), int(result.transductive)
    return {"way": spec.way, "shot": spec.shot, "unknown_share": share, "transductive": transductive}
