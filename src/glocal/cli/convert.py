"""Bring published weights into the format of this package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.console import Json, show

if TYPE_CHECKING:
    from glocal.engine.import_weights import Report


def convert(
    file: Annotated[Path, typer.Argument(help="A .pth file of FEAT, SnaTCHer, GEL or TANE.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The checkpoint to write, *.safetensors.")],
    layout: Annotated[str, typer.Option(help="auto, feat, snatcher, gel, att-g, att, tane or pretrained.")] = "auto",
    dataset: Annotated[
        str | None, typer.Option(help="mini-imagenet, tiered-imagenet or cifar-fs; needed unless the file tells it.")
    ] = None,
    shot: Annotated[int, typer.Option(help="1 or 5: which of the published settings.")] = 1,
    json: Json = False,
) -> None:
    """Turn published weights into a checkpoint; the file is read without running anything in it."""
    from glocal.engine.checkpoint import SUFFIX, save_model
    from glocal.engine.import_weights import import_weights
    from glocal_runtime.errors import RecipeError

    if out.suffix != SUFFIX:
        raise RecipeError(f"the checkpoint to write must be named *{SUFFIX}, got {out.name}")
    model, report = import_weights(file, layout=layout, dataset=dataset, shot=shot)
    save_model(out, model)
    show({"checkpoint": str(out), **report.to_json()}, as_json=json, otherwise=lambda: _table(out, report))


def _table(out: Path, report: Report) -> Any:
    from rich.markup import escape
    from rich.table import Table

    counts, prepare = report.counts, report.preprocess
    resized = f"resize {prepare['resize']}, crop" if prepare["resize"] else "no resizing,"
    rows = [
        ("file", report.file),
        ("sha256", report.sha256),
        (
            "weights in",
            report.container + (f"; beside them, not used: {', '.join(report.beside)}" * bool(report.beside)),
        ),
        ("layout", f"{report.layout}: {report.layout_why}"),
        ("dataset", f"{report.dataset}: {report.dataset_why}"),
        ("pictures", f"{resized} {prepare['size']} px"),
        (
            "backbone",
            f"resnet12 {'-'.join(map(str, report.widths))}: {counts['backbone']} tensors, "
            f"{report.parameters['backbone']:,} parameters",
        ),
        ("method", f"{report.method}: {counts['method']} tensors, {report.parameters['method']:,} parameters"),
    ]
    base = {name: entry["shape"] for name, entry in report.tensors.items() if entry["to"].startswith("extra.")}
    if base:
        rows.append(("base memory", ", ".join(f"{name} {tuple(shape)}" for name, shape in base.items())))
    reasons: dict[str, list[str]] = {}
    for name, why in report.ignored.items():
        reasons.setdefault(why, []).append(name)
    rows += [("ignored", f"{len(names)}: {', '.join(names)} ({why})") for why, names in reasons.items()]
    rows.append(("set to zero", f"{', '.join(report.added)} (counters that only this package has)"))
    rows += [("note", note) for note in report.notes]
    rows.append(("written", str(out)))

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, escape(text))
    return table
