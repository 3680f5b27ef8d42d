"""Commands for researchers: pretrain, train, evaluate."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.console import Device, Json, SupportViews, TrainingBar, Workers, bar, bars, quoted, screen, show

if TYPE_CHECKING:
    from glocal.engine.evaluate import Evaluation

RecipeName = Annotated[str, typer.Argument(help="A .toml file, or a shipped recipe by name (see `glocal list`).")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in that folder where it stopped.")]
Board = Annotated[bool, typer.Option("--tensorboard", help="Also write curves to tensorboard/ in that folder.")]
TasksFrom = Annotated[
    Path | None, typer.Option(help="Use the task list in this file, with its way, shot, query and seed.")
]
Set = Annotated[list[str], typer.Option("--set", help="Override a setting: path=value, e.g. optimizer.lr=0.05.")]


def pretrain(
    recipe: RecipeName,
    out: Out,
    resume: Resume = False,
    tensorboard: Board = False,
    set_: Set = [],  # noqa: B006 - typer reads the default and never changes it
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Teach a backbone the base classes with a linear classifier."""
    from glocal.engine.pretrain import pretrain as run

    _run(run, "pretrain", recipe, out, resume, tensorboard, set_, device, json)


def train(
    recipe: RecipeName,
    out: Out,
    init: Annotated[
        str | None, typer.Option(help="The run or checkpoint to start from; --set init=... in short.")
    ] = None,
    resume: Resume = False,
    tensorboard: Board = False,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Meta-train a method, task by task; the backbone fine-tuned or frozen."""
    from glocal.engine.train import train as run

    started_from = [] if init is None else [f"init={quoted(init)}"]
    _run(run, "train", recipe, out, resume, tensorboard, [*set_, *started_from], device, json)


def evaluate(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint, a run folder, or a shipped model by name.")],
    dataset: Annotated[str, typer.Option(help="A dataset by name, or a folder of class folders.")],
    split: Annotated[str, typer.Option(help="train, val or test; all for a folder that is not divided.")] = "test",
    way: Annotated[int, typer.Option(min=1, help="Known classes per task.")] = 5,
    shot: Annotated[int, typer.Option(min=1, help="Support pictures per known class.")] = 1,
    query: Annotated[int, typer.Option(min=1, help="Queries per class.")] = 15,
    unknown_way: Annotated[int | None, typer.Option(min=0, help="Unknown classes per task; as many as way.")] = None,
    tasks: Annotated[int, typer.Option(min=1, help="How many tasks.")] = 600,
    seed: Annotated[int, typer.Option(min=0, help="Which tasks.")] = 0,
    score: Annotated[str | None, typer.Option(help="Another open score than the method's own.")] = None,
    support_views: SupportViews = 1,
    tasks_from: TasksFrom = None,
    save_tasks: Annotated[Path | None, typer.Option(help="Write the task list to this file.")] = None,
    skip_bad: Annotated[bool, typer.Option(help="Leave out pictures that cannot be read, and count them.")] = False,
    workers: Workers = 2,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure a model on few-shot open-set tasks: mean and 95 % interval over tasks."""
    from glocal.data import EpisodeSampler, EpisodeSpec, TaskList, open_dataset
    from glocal.engine.checkpoint import load_model
    from glocal.engine.distributed import joined
    from glocal.engine.evaluate import evaluate as run
    from glocal.engine.support_views import view_banks

    model = load_model(checkpoint)
    if score is not None:
        model.method.choose_score(score)
    data = open_dataset(dataset, split, skip_bad=skip_bad)
    for bad in data.skipped:
        screen.print(f"left out {bad.where}: {bad.reason}", markup=False, highlight=False, soft_wrap=True)
    spec = EpisodeSpec(way, shot, query, way if unknown_way is None else unknown_way, query)
    drawn = TaskList.load(tasks_from, data) if tasks_from else EpisodeSampler(data, spec, seed=seed).take(tasks)
    if save_tasks:
        drawn.save(save_tasks)
    with joined(device) as where:
        with bar("encode") as progress:
            how: dict[str, Any] = {"workers": workers, "device": where, "progress": progress}
            bank, *more = view_banks(model.backbone, data, [drawn], support_views=support_views, **how)
        with bar("evaluate") as progress:
            found = run(model.method, drawn, bank, more_views=more, device=where, progress=progress)
    result = {
        "checkpoint": checkpoint,
        "method": model.record["method"]["name"],
        "open_score": model.method.open_score,
        "dataset": dataset,
        "split": split,
        "manifest": data.manifest,
        "skipped": [bad._asdict() for bad in data.skipped],
        "ignored": data.ignored,
        "duplicates": data.duplicates,
        "spec": {"way": drawn.spec.way, "shot": drawn.spec.shot, "query": drawn.spec.query}
        | {"unknown_way": drawn.spec.unknown_way, "unknown_query": drawn.spec.unknown_query},
        "support_views": support_views,
        "seed": drawn.seed,
        "tasks": len(drawn),
        "tasks_fingerprint": found.tasks,
        "metrics": {name: {"mean": i.mean, "ci95": i.half} for name, i in found.summary().items()},
    }
    show(result, as_json=json, otherwise=lambda: _table(checkpoint, result, found))


def _table(checkpoint: str, result: dict[str, Any], found: Evaluation) -> Any:
    """One line per metric, with its meaning: a single model needs no columns to compare."""
    from rich.markup import escape
    from rich.table import Table

    from glocal.metrics import METRICS

    spec = result["spec"]
    title = f"{checkpoint}: {spec['way']}-way {spec['shot']}-shot on {result['dataset']}/{result['split']}"
    skipped = f"; {len(result['skipped'])} pictures left out" if result["skipped"] else ""
    caption = (
        f"Mean ± 95 % interval over {result['tasks']} tasks, in percent. "
        f"Open score: {result['open_score']}; tasks {result['tasks_fingerprint'][:12]}{skipped}."
    )
    table = Table(title=escape(title), caption=escape(caption), box=None, title_justify="left", caption_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("meaning", style="dim")
    for name, interval in found.summary().items():
        metric = METRICS[name]
        arrow = "↑" if metric.higher_is_better else "↓"
        value = f"{100 * interval.mean:.2f} ± {100 * interval.half:.2f}"
        table.add_row(f"{metric.title} {arrow}", value, metric.description)
    return table


def _run(
    run: Any,
    stage: str,
    recipe: str,
    out: Path,
    resume: bool,
    tensorboard: bool,
    overrides: list[str],
    device: str,
    json: bool,
) -> None:
    from glocal.engine.callbacks import Callback, Callbacks, TensorBoard
    from glocal.engine.checkpoint import BEST, read_checkpoint
    from glocal.engine.distributed import joined, world
    from glocal.engine.recipe import load_recipe
    from glocal_runtime.errors import RecipeError

    parsed = load_recipe(recipe, overrides)
    if parsed.stage != stage:
        raise RecipeError(f"recipe {recipe} is for `glocal {parsed.stage}`, not for `glocal {stage}`")
    with joined(device) as where, bars() as progress, ExitStack() as at_the_end:
        if parsed.train.tasks_per_step == 1 and world().size > 1:  # one task per rank and step
            parsed = load_recipe(recipe, [*overrides, f"train.tasks_per_step={world().size}"])
        callbacks: list[Callback] = [TrainingBar(progress, stage)]
        if tensorboard:
            callbacks.append(at_the_end.enter_context(closing(TensorBoard(out))))
        run(parsed, out, resume=resume, device=where, callback=Callbacks(*callbacks))
    _, record = read_checkpoint(out / BEST)
    result = {"run": str(out), "step": record["step"], "validation": record["validation"]}
    shown = ", ".join(f"{name} {value * 100:.2f}" for name, value in record["validation"].items())
    show(
        result,
        as_json=json,
        otherwise=lambda: (
            f"{out}: best at step {record['step']} on validation ({shown}).\n"
            f"Next: glocal evaluate {out} --dataset {parsed.data.dataset}"
        ),
    )
