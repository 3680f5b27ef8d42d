"""The same report for runs of one's own: a table per shot, the ROC and the density of every run, who leads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal import __version__
from glocal.data.dataset import ClassDataset
from glocal.data.episodes import EpisodeSampler, EpisodeSpec
from glocal.engine.compare import compare
from glocal.engine.contestants import Contestant
from glocal.engine.row_store import RowStore
from glocal.metrics import score_histogram
from glocal.report import plots
from glocal.report.comparable import Measured
from glocal.report.comparison import Result, results
from glocal.reproduce.density import answers_of
from glocal.reproduce.folder import Drawing, Piece, Report, figure_piece, table_piece, write_report
from glocal.reproduce.measure import Bench
from glocal.reproduce.runs import commit, program


@dataclass(frozen=True)
class Test:
    """What the runs are measured on."""

    dataset: str
    split: str
    specs: Sequence[EpisodeSpec]  # a table for each
    seed: int = 0


def report_runs(
    contestants: Sequence[Contestant],
    data: ClassDataset,
    test: Test,
    reference: str,
    out: Path,
    bench: Bench,
    command: str,
) -> Path:
    """Measure what is new, write the report; returns the page.  Figures show the first of the specs."""
    lists = [EpisodeSampler(data, spec, seed=test.seed).take(bench.tasks) for spec in test.specs]
    store, how = RowStore(bench.store), {"device": bench.device, "workers": bench.workers, "watch": bench.watch}
    measured = compare(contestants, data, lists, store=store, **how)  # type: ignore[arg-type]
    found: list[Result] = []
    for spec, each in zip(test.specs, measured, strict=True):
        on = Measured(test.dataset, test.split, tuple(data.classes), spec)
        found += results(contestants, each.rows, on, reference=reference, seed=test.seed, fingerprint=each.tasks)
    numbers = {
        "command": command,
        "version": __version__,
        "commit": commit(),
        "dataset": Path(test.dataset).name,
        "split": test.split,
        "data": data.manifest,
        "seed": test.seed,
        "tasks": bench.tasks,
        "reference": reference,
        "models": {each.name: _about(each) for each in contestants},
    }
    conditions = {
        "Data": f"{Path(test.dataset).name}/{test.split} {data.manifest[:12]}",
        "Test": f"{bench.tasks} tasks per table, seed {test.seed}",
        "glocal": program(),
    }
    pieces = [
        table_piece(f"Runs on {Path(test.dataset).name}", "runs", found, {"what": "runs"}),
        _figures(contestants, data, test, bench),
    ]
    opening = [_leader(result) for result in found]
    title = f"{len(contestants)} {'rows' if len(contestants) > 1 else 'row'} on {Path(test.dataset).name}"
    return write_report(Report(title, opening, conditions, pieces, command, numbers=numbers), out)


def _leader(result: Result) -> str:
    """Who has the largest AUROC, and whether that is settled against the reference."""
    table, spec = result.table, result.measured.spec
    first = max(table.rows, key=lambda row: row.values["auroc"].mean)
    best, gap = table.number(first.values["auroc"].mean), first.difference.get("auroc")
    sentence = f"{spec.way}-way {spec.shot}-shot{', transductive' if result.transductive else ''}: "
    sentence += f"{first.name} leads with AUROC {best}"
    if gap is None:
        return f"{sentence}{'; it is the reference' if len(table.rows) > 1 else ''}."
    settled = "settled" if gap.low > 0 else "not settled"
    mean, low, high = (table.number(value, signed=True) for value in (gap.mean, gap.low, gap.high))
    return f"{sentence}, {mean} [{low}, {high}] against {table.reference}, which is {settled}."


def _figures(contestants: Sequence[Contestant], data: ClassDataset, test: Test, bench: Bench) -> Piece:
    spec = test.specs[0]
    tasks = EpisodeSampler(data, spec, seed=test.seed).take(bench.tasks)
    scores = {
        each.name: [(a.open_score, a.label >= 0) for a in answers_of(each, data, tasks, bench)] for each in contestants
    }
    drawings = [Drawing("roc", plots.roc(scores, title=f"{spec.way}-way {spec.shot}-shot"), "ROC of every row")]
    panels = []
    for i, (name, answers) in enumerate(scores.items(), 1):
        pooled = score_histogram(answers)
        panels.append(
            {"name": name, "iou": pooled.iou, "known": pooled.known.tolist(), "unknown": pooled.unknown.tolist()}
        )
        drawn = plots.density(pooled, title=name)
        drawings.append(
            Drawing(f"density-{i}", drawn, f"density of the open score of {name}, overlap {pooled.iou:.2f}")
        )
    return figure_piece("Known against unknown", drawings, [], {"what": "densities", "panels": panels})


def _about(each: Contestant) -> dict[str, Any]:
    record = each.model.record
    recipe = record.get("recipe") or {}
    return {
        "method": each.method,
        "open_score": each.score,
        "model": each.identity,
        "recipe": recipe,
        "seed": recipe.get("seed"),
        "data": {key: record.get("data", {}).get(key) for key in ("dataset", "manifest")},
    }
