"""``glocal demo``: a first look, on digits or on photos of your own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from glocal.cli.console import bars, check_free, check_there, show, stages
from glocal.cli.options import Device, Force, Json


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of recognizer and report.")] = Path("demo-out"),
    photos: Annotated[
        Path | None, typer.Option(help="Instead, the report of your own folder: photos/<class>/*.jpg, and unknown/.")
    ] = None,
    model: Annotated[str, typer.Option(help="With --photos: as in `glocal enroll`.")] = "fast",
    force: Force = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Teach, ask, explain and report, on handwritten digits that need no download."""
    if photos is not None:
        _demo_photos(photos, out, model, force, device, json)
        return
    from glocal.samples.demo import COMMANDS, run_demo

    with bars() as progress:
        shown = run_demo(out, device=device, progress=stages(progress, "pictures"))
    result = {"report": str(shown.report), "recognizer": str(shown.recognizer), "outcome": shown.outcome.to_json()}
    lines = [
        "A recognizer of five digits, taught with a few pictures each:",
        *(f"  {line}" for line in shown.expected),
        f"  {shown.kept}",
        f"  unknown digits caught: {shown.outcome.caught}",
        f"Report: {shown.report}",
        f"Try it: glocal serve {shlex.quote(str(shown.recognizer))}",
        "Next, with your photos in photos/<class>/:",
        *(f"  {line}" for line in COMMANDS.splitlines()),
    ]
    show(result, as_json=json, otherwise=lambda: "\n".join(lines))


def _demo_photos(photos: Path, out: Path, model: str, force: bool, device: str, json: bool) -> None:
    check_there(photos)
    report = out / "photos-report.html"
    check_free(report, force)
    from glocal.samples.photo_report import report_photos

    with bars() as progress:
        reporting = stages(progress, "pictures")
        shown = report_photos(photos, report, model=model, device=device, progress=reporting)
    lines = [*shown.recognizer.outlook().lines()]
    if shown.outcome is not None:
        asked = len(shown.outcome.pictures)
        lines.append(f"asked about {asked} photos it was not taught; of known ones right: {shown.outcome.accuracy}")
    again = f"Next: glocal enroll {shlex.quote(str(photos))} -o mine.glocal"
    show(
        {
            "report": str(report),
            "outlook": shown.recognizer.outlook().to_json(),
            "outcome": None if shown.outcome is None else shown.outcome.to_json(),
        },
        as_json=json,
        otherwise=lambda: "\n".join([*lines, f"Report: {report}", again]),
    )
