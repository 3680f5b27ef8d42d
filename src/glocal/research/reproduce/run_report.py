"""The same report for runs of one's own: a table per shot, the ROC and the density of every run, which one leads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glocal.common.words import counted
from glocal.research.data.episodes import EpisodeSampler
from glocal.research.engine.compare import ModelComparison, compare
from glocal.research.engine.named_models import NamedModel
from glocal.research.metrics import score_histogram
from glocal.research.report import plots
from glocal.research.report.comparison import Result, tables_of
from glocal.research.report.table import number, points
from glocal.research.reproduce.measurement import answers_of
from glocal.research.reproduce.report_folder import Drawing, Report, ReportPart, figure_part, table_part, write_report
from glocal.research.reproduce.runs import RunSettings, environment, in_words


def report_runs(
    models: Sequence[str], dataset: str, settings: RunSettings, command: str, shape: dict[str, Any]
) -> Path:
    """Measure what is new, write the report; returns the page.  Figures show the first of the shots.

    ``shape``: split, shots, way, query, unknown_way, reference and seed of ``compare``.
    """
    options: dict[str, Any] = {"keep": settings.out / "rows", "progress": settings.progress}
    options |= {"device": str(settings.device or "cpu"), "workers": settings.workers}
    comparison = compare(models, dataset, tasks=settings.tasks, **shape, **options)
    name, made = Path(dataset).name, environment(settings.device)
    on, tables = comparison.conditions[0], tables_of(comparison)
    numbers = {
        "environment": made,
        "dataset": name,
        "split": on.split,
        "data": comparison.data.manifest,
        "seed": shape["seed"],
        "tasks": settings.tasks,
        "reference": comparison.reference,
        "models": {each.name: _about(each) for each in comparison.models},
    }
    conditions = {
        "Data": f"{name}/{on.split} {comparison.data.manifest[:12]}",
        "Test": f"{settings.tasks} tasks per table, seed {shape['seed']}",
        "Made with": in_words(made),
    }
    parts = [table_part(f"Runs on {name}", "runs", tables, {"what": "runs"})]
    parts.append(_figures(comparison, settings, shape["seed"]))
    title = f"{counted(len(comparison.models), 'row')} on {name}"
    opening = [_leader(result) for result in tables]
    return write_report(Report(title, opening, conditions, parts, command, numbers=numbers), settings.out)


def _leader(result: Result) -> str:
    """Who has the largest AUROC, and whether tasks settle that against the reference: each row is one training."""
    table, spec = result.table, result.measured.spec
    first = max(table.rows, key=lambda row: row.values["auroc"].mean)
    best, gap = number(first.values["auroc"].mean), first.difference.get("auroc")
    sentence = f"{spec.way}-way {spec.shot}-shot{', transductive' if result.transductive else ''}: "
    sentence += f"{first.name} leads with AUROC {best}"
    if gap is None:
        return f"{sentence}{'; it is the reference' if len(table.rows) > 1 else ''}."
    significant = "significant" if gap.low > 0 else "not significant"
    mean, low, high = (points(value) for value in (gap.mean, gap.low, gap.high))
    return f"{sentence}, {mean} [{low}, {high}] against {table.reference}, which is {significant} over tasks."


def _figures(comparison: ModelComparison, settings: RunSettings, seed: int) -> ReportPart:
    spec = comparison.conditions[0].spec
    tasks = EpisodeSampler(comparison.data, spec, seed=seed).take(settings.tasks)
    answers = answers_of(comparison.models, comparison.data, tasks, settings)
    scores = {name: [(each.open_score, each.label >= 0) for each in of_row] for name, of_row in answers.items()}
    drawings = [Drawing("roc", plots.roc(scores, title=f"{spec.way}-way {spec.shot}-shot"), "ROC of every row")]
    panels = []
    for i, (name, pairs) in enumerate(scores.items(), 1):
        pooled = score_histogram(pairs)
        panels.append(
            {"name": name, "iou": pooled.iou, "known": pooled.known.tolist(), "unknown": pooled.unknown.tolist()}
        )
        alt = f"density of the open score of {name}, overlap {pooled.iou:.2f}"
        drawings.append(Drawing(f"density-{i}", plots.density(pooled, title=name), alt))
    return figure_part("Known against unknown", drawings, [], {"what": "densities", "panels": panels})


def _about(each: NamedModel) -> dict[str, Any]:
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
