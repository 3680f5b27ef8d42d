"""Commands for researchers: pretrain, train, evaluate, compare."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.console import (
    FIRST,
    TrainingBar,
    check_free,
    check_ours,
    check_there,
    logged_bars,
    quoted,
    show,
    stage_bars,
)
from glocal.cli.options import (
    DatasetName,
    Device,
    Force,
    Json,
    Query,
    Reference,
    Runs,
    Seed,
    Shots,
    SkipBad,
    Split,
    SupportViews,
    Tasks,
    UnknownWay,
    Way,
    Workers,
)
from glocal.cli.printing import tell

if TYPE_CHECKING:
    from glocal.research.engine.evaluate import Evaluation
    from glocal.research.engine.import_weights import ImportReport
    from glocal.research.report.comparison import Result

RecipeName = Annotated[str, typer.Argument(help="A .toml file, or a shipped recipe by name (see `glocal list`).")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.")]
Init = Annotated[str | None, typer.Option(help="The run or checkpoint to start from; --set init=... in short.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in that folder where it stopped.")]
Board = Annotated[bool, typer.Option("--tensorboard", help="Also write curves to tensorboard/ in that folder.")]
TasksFrom = Annotated[
    Path | None, typer.Option(help="Use the task list in this file, with its way, shot, query and seed.")
]
Set = Annotated[list[str], typer.Option("--set", help="Override a setting: path=value, e.g. optimizer.lr=0.05.")]


def _stage(stage: str, about: str) -> Callable[..., None]:
    """The command that trains by a recipe."""

    def command(
        recipe: RecipeName,
        out: Out,
        init: Init = None,
        resume: Resume = False,
        tensorboard: Board = False,
        set_: Set = [],  # noqa: B006 - typer reads the default and never changes it
        device: Device = "auto",
        json: Json = False,
    ) -> None:
        from glocal.research.plugins import recipe_file

        recipe_file(recipe)
        from glocal.research.engine.train import run_recipe

        overrides = [*set_, *([] if init is None else [f"init={quoted(init)}"])]
        options: dict[str, Any] = {"resume": resume, "tensorboard": tensorboard, "device": device}
        with logged_bars() as progress:
            best = run_recipe(stage, recipe, out, overrides=overrides, callback=TrainingBar(progress, stage), **options)
        shown = ", ".join(f"{name} {value * 100:.2f}" for name, value in best["validation"].items())
        run, dataset = shlex.quote(str(out)), shlex.quote(best["recipe"]["data"]["dataset"])
        show(
            {"run": str(out), "step": best["step"], "validation": best["validation"]},
            as_json=json,
            otherwise=lambda: (
                f"{out}: best at step {best['step']} on validation ({shown}).\n"
                f"Next: glocal evaluate {run} --dataset {dataset}"
            ),
        )

    command.__name__, command.__doc__ = stage, about
    return command


pretrain = _stage("pretrain", "Teach a backbone the base classes with a linear classifier.")
train = _stage("train", "Meta-train a method, task by task; the backbone fine-tuned or frozen.")


class Format(StrEnum):
    terminal = "terminal"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    json = "json"


def evaluate(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint, a run folder, or a shipped model by name.")],
    dataset: DatasetName,
    split: Split = "test",
    way: Way = 5,
    shot: Annotated[int, typer.Option(min=1, help="Support pictures per known class.")] = 1,
    query: Query = 15,
    unknown_way: UnknownWay = None,
    tasks: Tasks = 600,
    seed: Seed = 0,
    score: Annotated[str | None, typer.Option(help="Another open score than the method's own.")] = None,
    support_views: SupportViews = 1,
    tasks_from: TasksFrom = None,
    save_tasks: Annotated[Path | None, typer.Option(help="Write the task list to this file.")] = None,
    force: Force = False,
    skip_bad: SkipBad = False,
    workers: Workers = 2,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure a model on few-shot open-set tasks: mean and 95 % interval over tasks."""
    from glocal.research.engine.records import find_checkpoint

    find_checkpoint(checkpoint)
    from glocal.research.engine.evaluate import evaluate as run

    check_free(save_tasks, force)
    shape: dict[str, Any] = {"split": split, "way": way, "shot": shot, "query": query, "unknown_way": unknown_way}
    options: dict[str, Any] = {
        "support_views": support_views,
        "skip_bad": skip_bad,
        "workers": workers,
        "device": device,
    }
    options |= {"tasks": tasks_from or tasks, "seed": seed, "score": score, "save_tasks": save_tasks}
    with stage_bars() as progress:
        evaluation = run(checkpoint, dataset, progress=progress, **shape, **options)
    for bad in evaluation.about["skipped"]:
        tell(f"left out {bad['where']}: {bad['reason']}")
    show(evaluation.to_json(), as_json=json, otherwise=lambda: _table(checkpoint, evaluation))


def compare(
    runs: Runs,
    dataset: DatasetName,
    split: Split = "test",
    shots: Shots = "1,5",
    way: Way = 5,
    query: Query = 15,
    unknown_way: UnknownWay = None,
    unknown_share: Annotated[
        str | None, typer.Option(help="Share of unknown queries, such as 0.1,0.5,0.9; a table for each.")
    ] = None,
    support_views: SupportViews = 1,
    tasks: Tasks = 600,
    seed: Seed = 0,
    reference: Reference = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Keep rows and tables here; what is there is not run again.")
    ] = None,
    format: Annotated[
        Format, typer.Option(metavar="FORMAT", help="To print: terminal, markdown, latex, csv or json.")
    ] = Format.terminal,
    skip_bad: SkipBad = False,
    workers: Workers = 2,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure several models on the same tasks: intervals, differences, ranks, published."""
    from glocal.research.engine.records import find_checkpoint, parse_name

    for each in runs:
        find_checkpoint(parse_name(each)[1])
    from glocal.research.engine.compare import compare as run
    from glocal.research.report.comparison import SUFFIXES, comparison_json, tables_of, to_text, write_comparison

    if out is not None:
        check_ours(out / "compare.json", *(f"compare{suffix}" for suffix in SUFFIXES.values()))
    shares = None if unknown_share is None else parse_numbers("--unknown-share", unknown_share, float, "0.1,0.5")
    shape: dict[str, Any] = {"split": split, "shots": parse_shots(shots), "unknown_shares": shares, "way": way}
    shape |= {"query": query, "unknown_way": unknown_way, "support_views": support_views, "seed": seed}
    options: dict[str, Any] = {"reference": reference, "keep": None if out is None else out / "rows"}
    options |= {"skip_bad": skip_bad, "workers": workers, "device": device}
    with stage_bars() as progress:
        comparison = run(runs, dataset, tasks=tasks, progress=progress, **shape, **options)
    for bad in comparison.data.skipped:
        tell(f"left out {bad.where}: {bad.reason}")
    if out is not None and FIRST:
        write_comparison(comparison, out, runs)
    show(
        comparison_json(comparison) | {"runs": runs},
        as_json=json or format is Format.json,
        otherwise=lambda: (
            to_text(format.value, tables_of(comparison)).rstrip("\n")
            if format.value in SUFFIXES
            else _terminal(tables_of(comparison), out)
        ),
    )


def parse_shots(text: str) -> list[int]:
    from glocal.common.errors import RecipeError

    shots: list[int] = parse_numbers("--shots", text, int, "1,5")
    if min(shots) < 1 or len(set(shots)) < len(shots):
        raise RecipeError(f"--shots must be different whole numbers from 1, such as 1,5, got {text!r}")
    return shots


def parse_numbers(option: str, text: str, kind: Any, example: str) -> list[Any]:
    from glocal.common.errors import RecipeError

    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise RecipeError(f"{option} must be numbers such as {example}, got {text!r}") from error


def _table(checkpoint: str, evaluation: Evaluation) -> Any:
    """One line per metric, with its meaning: a single model needs no columns to compare."""
    from rich.markup import escape
    from rich.table import Table

    from glocal.research.metrics import METRICS

    about = evaluation.about
    spec = about["spec"]
    title = f"{checkpoint}: {spec['way']}-way {spec['shot']}-shot on {about['dataset']}/{about['split']}"
    skipped = f"; {len(about['skipped'])} pictures left out" if about["skipped"] else ""
    caption = (
        f"Mean ± 95 % interval over {about['tasks']} tasks, in percent. "
        f"Open score: {about['open_score']}; tasks {evaluation.tasks[:12]}{skipped}."
    )
    table = Table(title=escape(title), caption=escape(caption), box=None, title_justify="left", caption_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("meaning", style="dim")
    for name, interval in evaluation.summary().items():
        metric = METRICS[name]
        arrow = "↑" if metric.higher_is_better else "↓"
        value = f"{100 * interval.mean:.2f} ± {100 * interval.half:.2f}"
        table.add_row(f"{metric.title} {arrow}", value, metric.description)
    return table


def _terminal(results: Sequence[Result], out: Path | None) -> Any:
    """The two main metrics, one below the other to fit a terminal; the files have them all, notes in a column."""
    from dataclasses import replace

    from rich.console import Group
    from rich.text import Text

    from glocal.research.report.comparison import COMPARED
    from glocal.research.report.table import to_rich

    parts: list[Any] = []
    for table in (result.table for result in results):
        rows = tuple(replace(row, note="") for row in table.rows)
        main = [metric for metric in table.metrics if metric in COMPARED]
        for metric in main:
            drawn = to_rich(replace(table, metrics=[metric], rows=rows))
            drawn.title = drawn.title if metric == main[0] else None
            drawn.caption = drawn.caption if metric == main[-1] else None
            parts.append(drawn)
        parts += [Text(f"{row.name}: {row.note}", style="dim") for row in table.rows if row.note]
        parts.append("")
    if out is not None:
        parts.append(Text(f"All metrics: {out / 'compare'}.md, .tex, .csv, .json"))
    return Group(*parts)


def import_(
    file: Annotated[Path, typer.Argument(help="A .pth file of FEAT, SnaTCHer, GEL, TANE or a Conv-4.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The checkpoint to write, *.safetensors.")],
    layout: Annotated[
        str, typer.Option(help="auto, feat, snatcher, gel, gel-maps, att-g, att, tane, pretrained or conv4.")
    ] = "auto",
    dataset: Annotated[
        str | None, typer.Option(help="mini-imagenet, tiered-imagenet or cifar-fs; needed unless the file tells it.")
    ] = None,
    shot: Annotated[int, typer.Option(help="1 or 5: which of the published settings.")] = 1,
    force: Force = False,
    json: Json = False,
) -> None:
    """Turn published weights into a checkpoint; nothing in the file is run."""
    check_there(file)
    from glocal.common.errors import RecipeError
    from glocal.research.engine.checkpoint import save_model
    from glocal.research.engine.import_weights import import_weights
    from glocal.research.engine.records import SUFFIX

    if out.suffix != SUFFIX:
        raise RecipeError(f"the checkpoint to write must be named *{SUFFIX}, got {out.name}")
    check_free(out, force)
    model, report = import_weights(file, layout=layout, dataset=dataset, shot=shot)
    save_model(out, model)
    show({"checkpoint": str(out), **report.to_json()}, as_json=json, otherwise=lambda: _import_lines(out, report))


def _import_lines(out: Path, report: ImportReport) -> str:
    """What was found in the file, and what became of it."""
    counts, prepare = report.counts, report.preprocess
    resized = f"resize {prepare['resize']}, crop" if prepare["resize"] else "no resizing,"
    beside = f"; beside them, not used: {', '.join(report.beside)}" if report.beside else ""
    backbone, method = (
        f"{counts[part]} tensors, {report.parameters[part]:,} parameters" for part in ("backbone", "method")
    )
    base = {name: entry["shape"] for name, entry in report.tensors.items() if entry["to"].startswith("extra.")}
    ignored: dict[str, list[str]] = {}
    for name, why in report.ignored.items():
        ignored.setdefault(why, []).append(name)
    rows = [
        ("file", f"{report.file}, sha256 {report.sha256}"),
        ("weights in", f"{report.container}{beside}"),
        ("layout", f"{report.layout}: {report.layout_why}"),
        ("dataset", f"{report.dataset}: {report.dataset_why}"),
        ("pictures", f"{resized} {prepare['size']} px"),
        ("backbone", f"{report.backbone} {'-'.join(map(str, report.widths))}: {backbone}"),
        ("method", f"{report.method}: {method}"),
        ("base memory", ", ".join(f"{name} {tuple(shape)}" for name, shape in base.items())),
        *(("ignored", f"{len(names)}: {', '.join(names)} ({why})") for why, names in ignored.items()),
        ("set to zero", f"{', '.join(report.added)} (counters that only this package has)" if report.added else ""),
        *(("note", note) for note in report.notes),
        ("written", str(out)),
    ]
    return "\n".join(f"{name:<12} {text}" for name, text in rows if text)
