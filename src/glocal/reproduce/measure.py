"""Test tasks: every row that a report needs is measured once, and rows measured before are read.

All rows of one data set and shot see the same tasks, so any two of them can be compared task by task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from glocal.backbones import Backbone
from glocal.data.dataset import ClassDataset
from glocal.data.episodes import EpisodeSampler, EpisodeSpec, TaskList
from glocal.data.registry import open_dataset
from glocal.engine.checkpoint import load_model
from glocal.engine.compare import Watch, compare
from glocal.engine.contestants import Contestant, contestant
from glocal.engine.evaluate import Rows
from glocal.engine.row_store import RowStore
from glocal.metrics import PairedDifference, paired_difference
from glocal.report.comparable import Measured
from glocal.report.comparison import Result, results
from glocal.report.published import Published, published
from glocal.reproduce.runs import Run
from glocal.reproduce.tables import Line, TablePlan

SEED = 0  # of the test tasks


@dataclass(frozen=True)
class Bench:
    """How rows are measured."""

    tasks: int
    store: Path  # rows that were measured
    device: torch.device | str = "cpu"
    workers: int = 2
    watch: Watch | None = None


@dataclass(frozen=True)
class Measurement:
    """Test tasks of one shot and what was measured on them."""

    data: ClassDataset
    tasks: TaskList
    shot: int
    on: Measured
    fingerprint: str  # of the tasks
    folders: Mapping[Run, Path]
    contestants: Mapping[tuple[Run, str | None], Contestant]
    rows: Mapping[str, Rows]  # by the name of a contestant

    def named(self, line: Line) -> Contestant:
        return replace(self.contestants[line.run, line.score], name=line.label)

    def row(self, line: Line) -> Rows:
        return self.rows[self.contestants[line.run, line.score].name]

    def difference(self, line: Line, other: Line, metric: str = "auroc") -> PairedDifference:
        """How much a row exceeds another, task by task."""
        return paired_difference(self.row(line)[metric], self.row(other)[metric])


def measure(dataset: str, shot: int, lines: Iterable[Line], folders: Mapping[Run, Path], bench: Bench) -> Measurement:
    """``lines`` may repeat runs and scores; each pair is measured once, each model loaded once."""
    data = open_dataset(dataset, "test")
    spec = EpisodeSpec(shot=shot)
    tasks = EpisodeSampler(data, spec, seed=SEED).take(bench.tasks)
    eyes: dict[str, Backbone] = {}
    models: dict[Run, Contestant] = {}
    asked: dict[tuple[Run, str | None], Contestant] = {}
    for line in lines:
        if line.run not in models:
            models[line.run] = contestant(folders[line.run].name, load_model(folders[line.run]), eyes=eyes)
        model = models[line.run]
        score = line.score or model.score
        asked[line.run, line.score] = replace(model, name=f"{model.name}:{score}", score=score)
    different = list({each.name: each for each in asked.values()}.values())
    how: dict[str, Any] = {"device": bench.device, "workers": bench.workers, "watch": bench.watch}
    (found,) = compare(different, data, [tasks], store=RowStore(bench.store), **how)
    on = Measured(dataset, "test", tuple(data.classes), spec)
    return Measurement(data, tasks, shot, on, found.tasks, folders, asked, found.rows)


def table(plan: TablePlan, lines: list[Line], found: Measurement, *, beside: str) -> Result:
    """The paper's table again: ours, the difference to its reference row, and the published number.

    Published numbers are always there; the caption says what stands against comparing them, if anything does.
    """
    on = replace(found.on, dataset=beside)  # every reason why ours are not the paper's conditions is looked for
    (result,) = results(
        [found.named(line) for line in lines],
        {line.label: found.row(line) for line in lines},
        on,
        reference=plan.reference,
        seed=SEED,
        fingerprint=found.fingerprint,
    )
    theirs = {line.label: published_row(plan, line, beside, found.shot) for line in lines}
    beside_ours = {
        label: {m: v for m, v in row.values.items() if m in plan.metrics} for label, row in theirs.items() if row
    }
    notes = {line.label: line.note for line in lines}
    rows = [
        replace(
            row,
            note="; ".join(part for part in (notes[row.name], row.note) if part),
            rank={},
            published=beside_ours.get(row.name, {}),
        )
        for row in result.table.rows
    ]
    spec = found.on.spec
    title = f"{plan.title}: {spec.way}-way {spec.shot}-shot on {found.on.name}"
    caption = f"Published: the paper on {beside}, full width. {result.table.caption}"
    shown = replace(result.table, title=title, metrics=list(plan.metrics), rows=rows, caption=caption)
    return replace(result, table=shown, measured=found.on)


def published_row(plan: TablePlan, line: Line, dataset: str, shot: int) -> Published | None:
    wanted = (plan.name, dataset, line.published, shot, plan.backbone)
    same = (row for row in published() if (row.table, row.dataset, row.method, row.shot, row.backbone) == wanted)
    return next(same, None)
