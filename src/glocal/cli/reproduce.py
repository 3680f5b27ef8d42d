"""``glocal reproduce``: the paper's tables and figures; ``glocal report``: the same page for runs of one's own."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.compare import DatasetName, Queries, Reference, Runs, Seed, Shots, Split, Way, parse_shots
from glocal.cli.console import Device, Json, TrainingBar, Workers, bars, meter, screen, show

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from glocal.reproduce.cost import Estimate


class ScaleName(StrEnum):
    paper = "paper"
    cpu = "cpu"
    embedded = "embedded"


def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(
            help="table-1, ablation, combine, coefficients, resnet-18, figure-topk, figure-margin, figure-density, "
            "figure-pixels, or all."
        ),
    ],
    dataset: Annotated[
        list[str], typer.Option(help="A data set of the scale; once for each. All of them when left out.")
    ] = [],  # noqa: B006 - typer reads the default and never changes it
    scale: Annotated[
        ScaleName, typer.Option(help="paper: full recipes, GPU; cpu: real pictures, hours; embedded: minutes.")
    ] = ScaleName.embedded,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the runs and the report.")] = Path("reproduced"),
    tasks: Annotated[int | None, typer.Option(min=2, help="Test tasks per shot, if not those of the scale.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say which runs it takes and how long, and stop.")] = False,
    workers: Workers = 2,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Make the paper's tables and figures: what is there is reused, what was interrupted goes on."""
    from glocal.engine.compare import Watch
    from glocal.engine.device import pick_device
    from glocal.engine.loop import Interrupted
    from glocal.reproduce.folder import NUMBERS
    from glocal.reproduce.measure import Bench
    from glocal.reproduce.reproduction import SCALES, asked_for, runs_of
    from glocal.reproduce.reproduction import reproduce as run
    from glocal.reproduce.runs import Workshop

    chosen = SCALES[scale.value]
    names = asked_for(what, chosen)
    datasets = [chosen.check(name) for name in dict.fromkeys(dataset)] or chosen.datasets
    home = (out / "runs").resolve()
    if dry_run:
        from glocal.reproduce.cost import estimates

        planned = estimates(runs_of(names, chosen, datasets), home, chosen.name)
        show([vars(each) for each in planned], as_json=json, otherwise=lambda: _plan(planned, chosen.name))
        return
    where = pick_device(device)
    total = len({step for wanted in runs_of(names, chosen, datasets) for step in wanted.chain()})
    again = ["glocal", "reproduce", *what, *(word for name in dataset for word in ("--dataset", name))]
    again += ["--scale", chosen.name, *(["--tasks", str(tasks)] if tasks else []), "--out", out.name]
    with bars() as progress:
        watch = Watch(meter(progress, "encode"), meter(progress, "test"))
        try:
            page = run(
                names,
                chosen,
                datasets,
                out,
                Workshop(home, where, _OneBar(progress, total)),
                Bench(tasks or chosen.tasks, out / "rows", where, workers, watch),
                shlex.join(again),
            )
        except Interrupted as stopped:
            stopped.args = (
                f"stopped and saved; the same command goes on from here: {shlex.join(['glocal', *sys.argv[1:]])}",
            )
            raise
    _finish(page, out / NUMBERS, json)


class _OneBar:
    """Shows the run that is being made: called with its name, it gives the watcher of its training."""

    def __init__(self, progress: Progress, total: int):
        self._progress, self._total, self._made = progress, total, 0
        self._shown: list[TaskID] = []

    def __call__(self, title: str) -> TrainingBar:
        self._made += 1
        screen.print(f"run {self._made} of at most {self._total}: {title}", highlight=False)
        while self._shown:
            self._progress.update(self._shown.pop(), visible=False)
        bar = TrainingBar(self._progress, title.rsplit("-", 1)[0])
        self._shown.append(self._progress.task_ids[-1])
        return bar


def _finish(page: Path, numbers: Path, json: bool) -> None:
    from json import loads

    found = loads(numbers.read_text("utf-8"))
    show(
        {"report": str(page), "found": found["found"]},
        as_json=json,
        otherwise=lambda: "\n".join([*found["found"], f"Report: {page}"]),
    )


def _plan(planned: list[Estimate], scale: str) -> Any:
    """One line per run, and the sum of what is not there yet."""
    from rich.table import Table

    unit, factor = ("GPU hours", 1.0) if scale == "paper" else ("minutes", 60.0)
    table = Table(box=None, title_justify="left", caption_justify="left")
    for title, justify in (("run", "left"), ("recipe", "left"), ("state", "left"), (unit, "right")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    for each in planned:
        table.add_row(each.name or "(data not here)", each.recipe, each.state, f"{factor * each.hours:.1f}")
    left = sum(each.hours for each in planned if each.state != "done")
    speed = "15 TFLOP/s on a GPU" if scale == "paper" else "50 GFLOP/s on two cores"
    table.caption = (
        f"{len(planned)} runs; about {factor * left:.1f} {unit} to go, by the operations of the backbone at {speed}. "
        "Encoding pictures for frozen heads and testing come on top."
    )
    return table


def report(
    runs: Runs,
    dataset: DatasetName,
    split: Split = "test",
    shots: Shots = "1,5",
    way: Way = 5,
    query: Queries = 15,
    unknown_way: Annotated[int | None, typer.Option(min=1, help="Unknown classes per task; as many as way.")] = None,
    tasks: Annotated[int, typer.Option(min=2, help="How many tasks.")] = 600,
    seed: Seed = 0,
    reference: Reference = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the report.")] = Path("report"),
    workers: Workers = 2,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Make the report of `glocal reproduce` for runs of your own: tables, figures and one page."""
    from glocal.data import EpisodeSpec, open_dataset
    from glocal.engine.compare import Watch
    from glocal.engine.contestants import load_contestants
    from glocal.engine.device import pick_device
    from glocal.reproduce.folder import NUMBERS
    from glocal.reproduce.measure import Bench
    from glocal.reproduce.own_runs import Test, report_runs
    from glocal_runtime.errors import RecipeError

    contestants = load_contestants(runs)
    names = [each.name for each in contestants]
    base = names[0] if reference is None else reference
    if base not in names:
        raise RecipeError(f"the reference must be one of the rows {', '.join(names)}, got {base!r}")
    strangers = way if unknown_way is None else unknown_way
    specs = [EpisodeSpec(way, shot, query, strangers, query) for shot in parse_shots(shots)]
    data, where = open_dataset(dataset, split), pick_device(device)
    again = ["glocal", "report", *runs, "--dataset", dataset, "--split", split, "--shots", shots, "--way", str(way)]
    again += ["--query", str(query), "--unknown-way", str(strangers), "--tasks", str(tasks), "--seed", str(seed)]
    with bars() as progress:
        watch = Watch(meter(progress, "encode"), meter(progress, "test"))
        bench = Bench(tasks, out / "rows", where, workers, watch)
        page = report_runs(
            contestants,
            data,
            Test(dataset, split, specs, seed),
            base,
            out,
            bench,
            shlex.join([*again, "--reference", base]),
        )
    _finish(page, out / NUMBERS, json)
