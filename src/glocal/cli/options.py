"""The options and arguments that commands share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from glocal.common.errors import RecipeError


class EngineName(StrEnum):
    local = "local"
    ray = "ray"


RecognizerFile = Annotated[Path, typer.Argument(metavar="FILE", help="A .glocal file.")]
Out = Annotated[
    str | None, typer.Option("--out", "-o", help="For any number: a folder (or s3://...) of Parquet files in parts.")
]
Engine = Annotated[EngineName, typer.Option(help="Who works: processes of this machine, or Ray.")]
Address = Annotated[str | None, typer.Option(help="Of a Ray cluster, such as auto; else Ray starts on this machine.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")]
Processes = Annotated[int | None, typer.Option(min=1, help="Processes; one per core.")]
Force = Annotated[bool, typer.Option("--force", help="Write over what is there.")]
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu or cuda.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
BoxesFile = Annotated[
    Path | None, typer.Option("--boxes", help="Regions of the pictures: MegaDetector's JSON, COCO, or a CSV.")
]
MinConfidence = Annotated[float, typer.Option(help="Of a box, in --boxes.")]
Link = Annotated[bool, typer.Option("--link", help="Make links instead of copies.")]
SupportViews = Annotated[
    int,
    typer.Option(min=1, max=10, metavar="N", help="Show every support picture this often: plain, flipped, shifted."),
]
Workers = Annotated[int, typer.Option(min=1, metavar="N", help="Threads that decode pictures.")]
Half = Annotated[bool, typer.Option("--half", help="Weights in half precision: half the size.")]
Int8 = Annotated[
    Path | None, typer.Option("--int8", metavar="PHOTOS", help="8-bit layers, scaled by the photos in this folder.")
]

DatasetName = Annotated[str, typer.Option(help="A data set by name, or a folder of class folders.")]
Split = Annotated[str, typer.Option(help="train, val or test; all for a folder that is not divided.")]
Way = Annotated[int, typer.Option(min=1, metavar="N", help="Known classes per task.")]
Query = Annotated[int, typer.Option(min=1, metavar="N", help="Queries per class.")]
UnknownWay = Annotated[int | None, typer.Option(min=0, metavar="N", help="Unknown classes per task; as many as way.")]
Tasks = Annotated[int, typer.Option(min=1, metavar="N", help="How many tasks.")]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Which tasks.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out pictures that cannot be read, and say which.")]
Runs = Annotated[
    list[str],
    typer.Argument(help="Run folders, checkpoints or shipped models, as RUN, RUN:SCORE or LABEL=RUN:SCORE."),
]
Shots = Annotated[str, typer.Option(help="Support pictures per known class; a table for each.")]
Reference = Annotated[str | None, typer.Option(help="The row that differences are taken against; the first one.")]


def check_together(context: typer.Context, needs: Mapping[str, str], apart: Iterable[tuple[str, str, str]]) -> None:
    """Refuse options without one of those that they are about, and options that exclude each other.

    ``needs``: an option -> others, of which one must be there.  ``apart``: an option, others, why they exclude it.
    """
    sources = ((name, context.get_parameter_source(name)) for name in context.params)
    given = {f"--{name.replace('_', '-')}" for name, source in sources if source is None or source.name != "DEFAULT"}
    for option, others in needs.items():
        if option in given and not given.intersection(others.split()):
            raise RecipeError(f"{option} is about {' or '.join(others.split())}; give it too, or leave out {option}")
    for option, others, why in apart:
        if option in given and (wrong := [each for each in others.split() if each in given]):
            raise RecipeError(f"{option} and {wrong[0]} do not go together: {why}")
