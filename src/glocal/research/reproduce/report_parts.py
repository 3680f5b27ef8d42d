"""Tables and figures of the paper, each as a part of the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from glocal.research.metrics import mean_ci, significant
from glocal.research.report import plots
from glocal.research.report.plots import Point, curve, joined
from glocal.research.reproduce.measurement import Measurement, histogram, table_of
from glocal.research.reproduce.pixel_examples import FOOLED, Example, examples
from glocal.research.reproduce.plans import (
    DENSITY,
    FIGURE_SHOT,
    SHOTS,
    SWEEPS,
    TABLES,
    TablePlan,
    density_panels,
    pixel_line,
)
from glocal.research.reproduce.report_folder import Drawing, ReportPart, figure_part, table_part
from glocal.research.reproduce.runs import RunSettings
from glocal.research.reproduce.scales import Scale


def report_part(
    name: str, scale: Scale, dataset: str, measurements: Mapping[tuple[str, int], Measurement], settings: RunSettings
) -> ReportPart:
    """``measurements`` by data set and shot."""
    if name in TABLES:
        return _table(TABLES[name], scale, dataset, {shot: measurements[dataset, shot] for shot in SHOTS})
    here = measurements[dataset, FIGURE_SHOT]
    if name in SWEEPS:
        return _sweep(name, scale, dataset, here)
    return (_density if name == DENSITY else _pixels)(scale, dataset, here, settings)


def _table(plan: TablePlan, scale: Scale, dataset: str, measurements: Mapping[int, Measurement]) -> ReportPart:
    results, runs = [], {}
    for shot, here in measurements.items():
        lines = plan.lines(scale, dataset, shot)
        results.append(table_of(plan, lines, here, beside=scale.beside[dataset]))
        runs[f"{shot}-shot"] = {line.label: here.folders[line.run].name for line in lines}
    numbers = {"what": plan.name, "dataset": dataset, "published": scale.beside[dataset], "runs": runs}
    return table_part(f"{plan.name} on {dataset}", f"{plan.name}-{dataset}", results, numbers)


def _sweep(name: str, scale: Scale, dataset: str, measurement: Measurement) -> ReportPart:
    about = SWEEPS[name]
    own, lines = about.own(scale, dataset), about.lines(scale, dataset)
    base = next(line for x, line in lines if x == own)
    points, numbers, sure = [], [], []
    for x, line in lines:
        value, gap = mean_ci(measurement.row(line)["auroc"]), measurement.difference(line, base)
        points.append(Point(x, value.mean, gap.low, gap.high))
        entry: dict[str, Any] = {"x": x, "auroc": value.mean, "half": value.half}
        entry |= {"difference": [gap.mean, gap.low, gap.high], "run": measurement.folders[line.run].name}
        if (over := measurement.over_seeds(line, "auroc", base)) is not None:
            entry["seeds"] = asdict(over)
            sure += [f"{x:g}"] * significant(gap, over)
        numbers.append(entry)
    drawn = curve(points, marked=own, axis=about.axis, title=f"{about.title}, {dataset}")
    best, spread = max(points, key=lambda p: p.mean), max(p.mean for p in points) - min(p.mean for p in points)
    sentences = (
        f"AUROC of GEL (5-way {measurement.shot}-shot on {dataset}, {len(measurement.tasks)} tasks) moves by "
        f"{100 * spread:.2f} points over {len(points)} settings; the largest is at {best.x:g}. {about.paper} "
        "Bars: 95 % interval of the difference to the ringed setting on the same tasks."
    )
    if measurement.seeds > 1:
        sentences += (
            f" Each is the mean of {measurement.seeds} training seeds; significant over tasks and seeds is a "
            f"difference to the ringed setting at {', '.join(sure) or 'none of them'}."
        )
    drawing = Drawing(f"{name}-{dataset}", drawn, alt=f"AUROC over {about.axis} on {dataset}")
    return figure_part(
        f"{name} on {dataset}",
        [drawing],
        [sentences],
        {"what": name, "dataset": dataset, "shot": measurement.shot, "own": own, "points": numbers},
    )


def _density(scale: Scale, dataset: str, measurement: Measurement, settings: RunSettings) -> ReportPart:
    drawings, sentences, numbers = [], [], []
    for line, published in density_panels(scale, dataset):
        pooled = histogram(line, measurement, settings)
        score = measurement.models[line.run, line.score].score
        entry: dict[str, Any] = {"method": line.label, "score": score, "iou": pooled.iou, "published_iou": published}
        entry |= {
            "run": measurement.folders[line.run].name,
            "known": pooled.known.tolist(),
            "unknown": pooled.unknown.tolist(),
        }
        text = f"{line.label} {pooled.iou:.2f} by {score}"
        if not line.label.lower().endswith("gel"):  # all but GEL by entropy too, as the paper has it
            entry["entropy_iou"] = histogram(replace(line, score="entropy"), measurement, settings).iou
            text += f" and {entry['entropy_iou']:.2f} by entropy"
        sentences.append(f"{text} (paper {published:.2f})")
        numbers.append(entry)
        name = f"figure-density-{dataset}-{line.label.lower()}"
        alt = f"density of the scaled open score of {line.label}, known and unknown queries, overlap {pooled.iou:.2f}"
        drawings.append(Drawing(name, plots.density(pooled, title=f"{line.label}, by {score}"), alt))
    below = (
        f"Overlap (IoU, smaller is better) of known and unknown queries over {len(measurement.tasks)} tasks, 5-way "
        f"{measurement.shot}-shot on {dataset}: {'; '.join(sentences)}. The paper measured on miniImageNet, "
        "with energy for GEL and entropy for the others. Scores are scaled within each task, "
        f"so one far outlier squeezes the others together: IoU is no substitute for AUROC.{_first_seed(measurement)}"
    )
    return figure_part(
        f"figure-density on {dataset}",
        drawings,
        [below],
        {"what": "figure-density", "dataset": dataset, "panels": numbers},
    )


def _pixels(scale: Scale, dataset: str, measurement: Measurement, settings: RunSettings) -> ReportPart:
    line = pixel_line(scale, dataset)
    chosen = examples(line, measurement, settings)
    drawings = [_drawing(example, i, dataset) for i, example in enumerate(chosen.shown, 1)]
    counts = "; ".join(f"{name} {count}" for name, count in chosen.counts.items())
    below = (
        f"Of {chosen.unknown} unknown queries in the first {chosen.tasks} tasks: {counts}. Shown are queries of the "
        "first and third kind whose place changes most, one of each, then four more that E_c misses and E finds; no "
        "pair of classes twice. A score calls as many queries unknown as there are. Lines join every pixel of the "
        f"query's map to the class pixel most like it.{_first_seed(measurement)}"
    )
    plain = [
        {"kind": each.kind, "truth": each.truth, "taken_for": each.taken_for, "task": each.task}
        | {"place_by_wrong_score": each.place[0], "place_by_E": each.place[1], "unknown_queries": each.place[2]}
        for each in chosen.shown
    ]
    numbers = {
        "what": "figure-pixels",
        "dataset": dataset,
        "run": measurement.folders[line.run].name,
        "counts": chosen.counts,
    }
    more = {"tasks": chosen.tasks, "unknown": chosen.unknown, "examples": plain}
    return figure_part(f"figure-pixels on {dataset}", drawings, [below], {**numbers, **more})


def _first_seed(measurement: Measurement) -> str:
    return f" Of {measurement.seeds} training seeds this is the first." if measurement.seeds > 1 else ""


def _drawing(example: Example, number: int, dataset: str) -> Drawing:
    wrong, right, cut = example.place
    drawn = joined(
        example.query,
        example.support,
        side=example.side,
        partner=example.partner,
        cosine=example.cosine,
        names=(f"unknown: {example.truth}", f"known: {example.taken_for}"),
        title=f"{example.kind.capitalize()}",
        below=f"{FOOLED[example.kind]}: place {wrong}, passes for known ✗\n"
        f"E: place {right}, found ✓   ({cut} most unknown are refused)",
    )
    alt = (
        f"{example.kind}: a query of {example.truth}, never shown, beside the class {example.taken_for}, pixels joined"
    )
    return Drawing(f"figure-pixels-{dataset}-{number}", drawn, alt)
