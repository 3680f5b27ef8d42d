"""Test tasks: every row that a report needs is measured once, and rows measured before are read.

All rows of one data set and shot see the same tasks, so any two of them can be compared task by task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from glocal.research.backbones import Backbone
from glocal.research.data import open_dataset
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.episodes import EpisodeSampler, EpisodeSpec, TaskList
from glocal.research.engine.checkpoint import load_model
from glocal.research.engine.compare import Conditions, evaluate_models
from glocal.research.engine.distributed import world
from glocal.research.engine.evaluate import Rows, TaskScores
from glocal.research.engine.named_models import NamedModel, RowStore, name_model
from glocal.research.metrics import PairedDifference, ScoreHistogram, Spread, paired_difference, score_histogram, spread
from glocal.research.metrics.openset import BINS
from glocal.research.report.comparison import Result, results
from glocal.research.report.published import CAPTION, Published, published
from glocal.research.reproduce.plans import Line, TablePlan
from glocal.research.reproduce.runs import Run, RunSettings

SEED = 0  # of the test tasks


@dataclass(frozen=True)
class Measurement:
    """Test tasks of one shot and what was measured on them."""

    data: ClassDataset
    tasks: TaskList
    shot: int
    on: Conditions
    fingerprint: str  # of the tasks
    folders: Mapping[Run, Path]
    models: Mapping[tuple[Run, str | None], NamedModel]
    rows: Mapping[str, Rows]  # by the name of a model
    seeds: int = 1  # trainings of every row

    def named(self, line: Line) -> NamedModel:
        return replace(self.models[line.run, line.score], name=line.label)

    def row(self, line: Line) -> Rows:
        """One number per task and metric, the mean over seeds."""
        every = [self._row(line, seed) for seed in range(self.seeds)]
        if self.seeds == 1:
            return every[0]
        return {metric: np.mean([rows[metric] for rows in every], axis=0) for metric in every[0]}

    def _row(self, line: Line, seed: int) -> Rows:
        return self.rows[self.models[line.run.seeded(seed), line.score].name]

    def over_seeds(self, line: Line, metric: str, other: Line | None = None) -> Spread | None:
        """Of the mean over tasks, or of its difference to another row; None with one seed."""
        if self.seeds < 2:
            return None
        values = [self._row(line, seed)[metric].mean() for seed in range(self.seeds)]
        base = [0.0 if other is None else self._row(other, seed)[metric].mean() for seed in range(self.seeds)]
        return spread(np.subtract(values, base))

    def difference(self, line: Line, other: Line) -> PairedDifference:
        """By how much AUROC a row exceeds another, task by task."""
        return paired_difference(self.row(line)["auroc"], self.row(other)["auroc"])


def measure(
    dataset: str, shot: int, lines: Iterable[Line], folders: Mapping[Run, Path], settings: RunSettings
) -> Measurement:
    """``lines`` may repeat runs and scores; each pair is measured once, each model loaded once."""
    data = open_dataset(dataset, "test")
    spec = EpisodeSpec(shot=shot)
    tasks = EpisodeSampler(data, spec, seed=SEED).take(settings.tasks)
    backbones: dict[str, Backbone] = {}
    loaded: dict[Run, NamedModel] = {}
    asked: dict[tuple[Run, str | None], NamedModel] = {}
    for line in lines:
        for run in (line.run.seeded(seed) for seed in range(settings.seeds)):
            if run not in loaded:
                folder = folders[run]
                loaded[run] = name_model(folder.name, load_model(folder), backbones=backbones)
            model = loaded[run]
            score = line.score or model.score
            asked[run, line.score] = replace(model, name=f"{model.name}:{score}", score=score)
    different = list({each.name: each for each in asked.values()}.values())
    store = RowStore(settings.out / "rows")
    (evaluations,) = evaluate_models(different, data, [tasks], keep_maps=False, store=store, **settings.testing)
    rows = {name: each.rows for name, each in evaluations.items()}
    on = Conditions(dataset, "test", tuple(data.classes), spec)
    return Measurement(
        data, tasks, shot, on, evaluations[different[0].name].tasks, folders, asked, rows, settings.seeds
    )


def answers_of(
    models: Sequence[NamedModel], data: ClassDataset, tasks: TaskList, settings: RunSettings, *, keep_maps: bool = True
) -> dict[str, tuple[TaskScores, ...]]:
    """What each model says about every query; rows of metrics alone do not tell."""
    quiet = settings.testing | {"progress": None}
    (evaluations,) = evaluate_models(models, data, [tasks], keep_answers=True, keep_maps=keep_maps, **quiet)
    return {name: each.answers for name, each in evaluations.items()}


def histogram(line: Line, measurement: Measurement, settings: RunSettings) -> ScoreHistogram:
    """Open scores of the density figure: scaled to [0, 1] in each test task, pooled; read when made before."""
    model, store = measurement.models[line.run, line.score], RowStore(settings.out / "densities")
    world().largest(0)  # all find the same there
    counts = store.read(model, measurement.fingerprint, 1)
    if counts is None:
        answers = answers_of([model], measurement.data, measurement.tasks, settings, keep_maps=False)
        pooled = score_histogram((each.open_score, each.label >= 0) for each in answers[model.name])
        counts = {"known": pooled.known.astype(np.float64), "unknown": pooled.unknown.astype(np.float64)}
        store.write(model, measurement.fingerprint, 1, counts)
    known, unknown = (counts[side].astype(np.int64) for side in ("known", "unknown"))
    return ScoreHistogram(np.arange(BINS + 1) / BINS, known=known, unknown=unknown)


def table_of(plan: TablePlan, lines: list[Line], measurement: Measurement, *, beside: str) -> Result:
    """The paper's table again: ours, the difference to its reference row, and the published number.

    Published numbers are always there; notes and caption say what ours are.
    """
    (result,) = results(
        [measurement.named(line) for line in lines],
        {line.label: measurement.row(line) for line in lines},
        measurement.on,
        reference=plan.reference,
        seed=SEED,
        fingerprint=measurement.fingerprint,
    )
    by_label, rows = {line.label: line for line in lines}, []
    for row in result.table.rows:
        line = by_label[row.name]
        theirs = published_row(plan, line, beside, measurement.shot)
        spreads = {metric: measurement.over_seeds(line, metric) for metric in plan.metrics}
        gaps = {metric: measurement.over_seeds(line, metric, by_label[plan.reference]) for metric in row.difference}
        rows.append(
            replace(
                row,
                spread={metric: value for metric, value in spreads.items() if value is not None},
                difference_spread={metric: value for metric, value in gaps.items() if value is not None},
                note="; ".join(part for part in (line.note, row.note) if part),
                rank={},
                published={m: v for m, v in theirs.values.items() if m in plan.metrics} if theirs else {},
            )
        )
    spec = measurement.on.spec
    title = f"{plan.title}: {spec.way}-way {spec.shot}-shot on {measurement.on.name}"
    own = result.table.caption.removesuffix(f" {CAPTION}")
    caption = f"{own} {CAPTION.replace('the GEL paper', f'the GEL paper on {beside}')}"
    if measurement.seeds > 1 and all(line.run.chain()[0].resolved().init is not None for line in lines):
        caption += " Seeds are those of the heads: the backbone is the same for all."
    return replace(
        result, table=replace(result.table, title=title, metrics=list(plan.metrics), rows=rows, caption=caption)
    )


def published_row(plan: TablePlan, line: Line, dataset: str, shot: int) -> Published | None:
    wanted = (plan.name, dataset, line.published, shot, line.backbone or plan.backbone)
    same = (row for row in published() if (row.table, row.dataset, row.method, row.shot, row.backbone) == wanted)
    return next(same, None)
