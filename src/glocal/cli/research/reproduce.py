"""``glocal reproduce``: the paper's tables and figures; ``report``: the same for own runs."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.console import TrainingBar, check_ours, logged_bars, screen, show, stage_bars, stages
from glocal.cli.options import (
    Address,
    DatasetName,
    Device,
    Engine,
    EngineName,
    Json,
    Query,
    Reference,
    Runs,
    Seed,
    Shots,
    Split,
    Way,
    Workers,
)
from glocal.cli.research.studies import parse_shots

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from glocal.research.reproduce.runs import Run, RunSettings


class SettingsName(StrEnum):
    paper = "paper"
    authors = "authors"


class ScaleName(StrEnum):
    paper = "paper"
    cpu = "cpu"
    embedded = "embedded"


def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(
            help="table-1, ablation, combine, scores, coefficients, resnet-18, figure-topk, figure-margin, "
            "figure-density, figure-pixels, or all."
        ),
    ],
    dataset: Annotated[
        list[str], typer.Option(help="A data set of the scale; once for each. All of them when left out.")
    ] = [],  # noqa: B006 - typer reads the default and never changes it
    scale: Annotated[
        ScaleName,
        typer.Option(
            help="paper: full recipes, GPU; cpu: heads on frozen maps of real pictures, of a third of the paper's "
            "width; embedded: minutes."
        ),
    ] = ScaleName.embedded,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the runs and the report.")] = Path("reproduced"),
    tasks: Annotated[int | None, typer.Option(min=2, help="Test tasks per shot, if not those of the scale.")] = None,
    settings: Annotated[
        SettingsName, typer.Option(help="At paper scale: as the paper's text has them, or as the authors' program.")
    ] = SettingsName.paper,
    overrides: Annotated[
        list[str],
        typer.Option(
            "--set",
            help="path=value for every recipe, as in speed.precision=bfloat16; train:path=value or pretrain:path=value "
            "for one stage.",
        ),
    ] = [],  # noqa: B006
    seeds: Annotated[
        int, typer.Option(min=1, help="Trainings of every run; more than one show how much they vary.")
    ] = 1,
    engine: Engine = EngineName.local,
    address: Address = None,
    workers: Workers = 2,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Make the paper's tables and figures; what is there is reused, what stopped goes on."""
    from glocal.research.engine.distributed import joined, world
    from glocal.research.engine.loop import Interrupted
    from glocal.research.reproduce.reproduction import asked_for, runs_of
    from glocal.research.reproduce.reproduction import reproduce as run
    from glocal.research.reproduce.runs import RunSettings
    from glocal.research.reproduce.scales import SCALES

    processes = int(os.environ.get("WORLD_SIZE", "1"))  # under torchrun every process has a task of each step
    on = {} if engine is EngineName.local else {"make": _ray(address, processes)}
    dealt = [f"train:train.tasks_per_step={processes}"] if processes > 1 else []
    reading = f"data.workers={workers}"  # also of trainings
    chosen = SCALES[scale.value].set_as(settings.value, [reading, *dealt, *overrides])
    names = asked_for(what, chosen)
    datasets = [chosen.check(name) for name in dict.fromkeys(dataset)] or chosen.datasets
    runs = runs_of(names, chosen, datasets)
    _check_report(out)
    again = ["glocal", "reproduce", *what, *(word for name in dataset for word in ("--dataset", name))]
    again += ["--scale", chosen.name, *(["--settings", settings.value] if chosen.settings != "paper" else [])]
    again += [word for override in overrides for word in ("--set", override)]
    again += [*(["--tasks", str(tasks)] if tasks else []), *(["--seeds", str(seeds)] if seeds > 1 else [])]
    again += ["--out", out.name]
    with logged_bars() as progress, joined(device) as where:
        bar = _run_bars(progress, seeds * len({step for each in runs for step in each.chain()}))
        run_settings = RunSettings(out, tasks or chosen.tasks, where, workers, bar, stages(progress), seeds)
        try:
            page = run(names, chosen, datasets, run_settings, shlex.join(again), **on)
        except Interrupted as stopped:
            command = shlex.join(["glocal", *sys.argv[1:]])
            stopped.args = (f"stopped and saved; the same command goes on from here: {command}",)
            raise
        written = world().first
    if written:
        _finish(page, json)


def _ray(address: str | None, processes: int) -> Callable[[Sequence[Run], RunSettings], None]:
    """A function that makes runs on Ray."""
    from glocal.bulk.addresses import needing_pyarrow

    with needing_pyarrow():
        from glocal.bulk.on_ray import check_ray
    from glocal.common.errors import RecipeError
    from glocal.research.reproduce.runs import make_runs_on_ray

    if processes > 1:
        raise RecipeError(
            "--engine ray gives every run to one process, torchrun gives one run to several (here "
            f"{processes}); leave out one of the two",
            code="ray-or-torchrun",
        )
    check_ray()
    return partial(make_runs_on_ray, address=address)


def _run_bars(progress: Progress, total: int) -> Callable[[str], TrainingBar]:
    """A bar for the run that is being made, in place of the one before."""
    shown: list[TaskID] = []

    def bar(title: str) -> TrainingBar:
        screen().print(f"run {len(shown) + 1} of at most {total}: {title}", highlight=False)
        for task in shown:
            progress.update(task, visible=False)
        training = TrainingBar(progress, title.rsplit("-", 1)[0])
        shown.append(progress.task_ids[-1])
        return training

    return bar


def _finish(page: Path, json: bool) -> None:
    from json import loads

    from glocal.research.reproduce.report_folder import NUMBERS

    numbers = loads((page.parent / NUMBERS).read_text("utf-8"))
    show(
        {"report": str(page), "found": numbers["found"]},
        as_json=json,
        otherwise=lambda: "\n".join([*numbers["found"], f"Report: {page}"]),
    )


def _check_report(out: Path) -> None:
    from glocal.research.reproduce.report_folder import HTML, MARKDOWN, NUMBERS

    check_ours(out / NUMBERS, MARKDOWN, HTML)


def report(
    runs: Runs,
    dataset: DatasetName,
    split: Split = "test",
    shots: Shots = "1,5",
    way: Way = 5,
    query: Query = 15,
    unknown_way: Annotated[int | None, typer.Option(min=1, help="Unknown classes per task; as many as way.")] = None,
    tasks: Annotated[int, typer.Option(min=2, help="How many tasks.")] = 600,
    seed: Seed = 0,
    reference: Reference = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the report.")] = Path("report"),
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Make the report of `glocal reproduce` for runs of your own."""
    from glocal.research.engine.distributed import pick_device
    from glocal.research.reproduce.run_report import report_runs
    from glocal.research.reproduce.runs import RunSettings

    _check_report(out)
    again = ["glocal", "report", *runs, "--dataset", dataset, "--split", split, "--shots", shots, "--way", str(way)]
    again += ["--query", str(query), "--unknown-way", str(unknown_way or way), "--tasks", str(tasks)]
    again += ["--seed", str(seed), *([] if reference is None else ["--reference", reference])]
    shape: dict[str, Any] = {"split": split, "shots": parse_shots(shots), "way": way, "query": query}
    shape |= {"unknown_way": unknown_way, "reference": reference, "seed": seed}
    with stage_bars() as progress:
        settings = RunSettings(out, tasks, pick_device(device), progress=progress)
        page = report_runs(runs, dataset, settings, shlex.join(again), shape)
    _finish(page, json)
