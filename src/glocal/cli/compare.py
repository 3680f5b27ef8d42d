"""``glocal compare``: several models on the same tasks, with paired statistics."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.console import FIRST, Device, Json, SupportViews, Workers, bars, meter, screen, show

if TYPE_CHECKING:
    from glocal.data import EpisodeSpec
    from glocal.report.comparison import Result


# Options that every command about a row of models has.
Runs = Annotated[
    list[str],
    typer.Argument(help="Run folders, checkpoints or shipped models, as RUN, RUN:SCORE or LABEL=RUN:SCORE."),
]
DatasetName = Annotated[str, typer.Option(help="A dataset by name, or a folder of class folders.")]
Split = Annotated[str, typer.Option(help="train, val or test; all for a folder that is not divided.")]
Shots = Annotated[str, typer.Option(help="Support pictures per known class; a table for each.")]
Way = Annotated[int, typer.Option(min=1, help="Known classes per task.")]
Queries = Annotated[int, typer.Option(min=1, help="Queries per class.")]
Seed = Annotated[int, typer.Option(min=0, help="Which tasks.")]
Reference = Annotated[str | None, typer.Option(help="The row that differences are taken against; the first one.")]


class Format(StrEnum):
    terminal = "terminal"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    json = "json"


def compare(
    runs: Runs,
    dataset: DatasetName,
    split: Split = "test",
    shots: Shots = "1,5",
    way: Way = 5,
    query: Queries = 15,
    unknown_way: Annotated[int | None, typer.Option(min=0, help="Unknown classes per task; as many as way.")] = None,
    unknown_share: Annotated[
        str | None, typer.Option(help="Share of unknown queries, such as 0.1,0.5,0.9; a table for each.")
    ] = None,
    support_views: SupportViews = 1,
    tasks: Annotated[int, typer.Option(min=1, help="How many tasks.")] = 600,
    seed: Seed = 0,
    reference: Reference = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Keep rows and tables here; what is there is not run again.")
    ] = None,
    format: Annotated[Format, typer.Option(help="What to print.")] = Format.terminal,
    skip_bad: Annotated[bool, typer.Option(help="Leave out pictures that cannot be read, and count them.")] = False,
    workers: Workers = 2,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure several models on the same tasks: intervals, paired differences, ranks, published numbers."""
    from glocal import __version__
    from glocal.data import EpisodeSampler, EpisodeSpec, open_dataset
    from glocal.engine.compare import Watch
    from glocal.engine.compare import compare as run
    from glocal.engine.contestants import load_contestants
    from glocal.engine.distributed import joined
    from glocal.engine.row_store import RowStore
    from glocal.report.comparable import Measured
    from glocal.report.comparison import TEXTS, results
    from glocal_runtime.errors import RecipeError

    specs = _settings(
        [
            EpisodeSpec(way, shot, query, way if unknown_way is None else unknown_way, query)
            for shot in parse_shots(shots)
        ],
        unknown_share,
    )
    contestants = load_contestants(runs)
    names = [each.name for each in contestants]
    base = names[0] if reference is None else reference
    if base not in names:
        raise RecipeError(f"the reference must be one of the rows {', '.join(names)}, got {base!r}")
    data = open_dataset(dataset, split, skip_bad=skip_bad)
    for bad in data.skipped:
        screen.print(f"left out {bad.where}: {bad.reason}", markup=False, highlight=False, soft_wrap=True)
    lists = [EpisodeSampler(data, spec, seed=seed).take(tasks, keep=False) for spec in specs]
    with joined(device) as where, bars() as progress:
        measured = run(
            contestants,
            data,
            lists,
            support_views=support_views,
            store=RowStore(None if out is None else out / "rows"),
            device=where,
            workers=workers,
            watch=Watch(meter(progress, "encode"), meter(progress, "compare")),
        )
    found: list[Result] = []
    for spec, each in zip(specs, measured, strict=True):
        on = Measured(dataset, split, data.classes, spec, support_views)
        found += results(contestants, each.rows, on, reference=base, seed=seed, fingerprint=each.tasks)
    plain = {
        "version": __version__,
        "runs": runs,
        "dataset": dataset,
        "split": split,
        "manifest": data.manifest,
        "reference": base,
        "models": [
            {"name": c.name, "method": c.method, "open_score": c.score, "model": c.identity} for c in contestants
        ],
        "tables": [result.to_json() for result in found],
    }
    if out is not None and FIRST:
        _write(out, plain, found)
    text = TEXTS.get(format.value)
    show(
        plain,
        as_json=json or format is Format.json,
        otherwise=lambda: _terminal(found, out) if text is None else text(found).rstrip("\n"),
    )


def parse_shots(text: str) -> list[int]:
    from glocal_runtime.errors import RecipeError

    try:
        shots = [int(part) for part in text.split(",")]
    except ValueError:
        shots = []
    if not shots or min(shots) < 1 or len(set(shots)) < len(shots):
        raise RecipeError(f"--shots must be different whole numbers from 1, such as 1,5, got {text!r}")
    return shots


def _settings(specs: Sequence[EpisodeSpec], unknown_share: str | None) -> list[EpisodeSpec]:
    """Every shot with every share of unknown queries."""
    from glocal.data.unknown_share import with_unknown_share
    from glocal_runtime.errors import RecipeError

    if unknown_share is None:
        return list(specs)
    try:
        shares = [float(part) for part in unknown_share.split(",")]
    except ValueError as error:
        raise RecipeError(f"--unknown-share must be numbers such as 0.1,0.5, got {unknown_share!r}") from error
    return [with_unknown_share(spec, share) for spec in specs for share in shares]


def _write(out: Path, plain: dict[str, Any], found: Sequence[Result]) -> None:
    """The tables of this call in every format; rows of earlier calls stay beside them."""
    from json import dumps

    from glocal.report.comparison import SUFFIXES, TEXTS
    from glocal_runtime.files import write_text

    write_text(out / "compare.json", dumps(plain, indent=1) + "\n")
    for name, make in TEXTS.items():
        write_text((out / "compare").with_suffix(SUFFIXES[name]), make(found))


def _terminal(found: Sequence[Result], out: Path | None) -> Any:
    """The two main metrics, one below the other to fit a terminal; the files have them all, notes in a column."""
    from dataclasses import replace

    from rich.console import Group
    from rich.text import Text

    from glocal.report.comparison import COMPARED
    from glocal.report.table import to_rich

    parts: list[Any] = []
    for result in found:
        table = result.table
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
