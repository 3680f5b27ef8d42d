"""`glocal watch`: sort the pictures of a folder as they come."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.console import check_there
from glocal.cli.options import BoxesFile, Device, Link, MinConfidence, RecognizerFile
from glocal.cli.printing import tell
from glocal.common.errors import DataError, GlocalError, RecipeError
from glocal.common.files import alone_at, check_recognizer
from glocal.common.words import counted, printable

if TYPE_CHECKING:
    from glocal.bulk.watch import Watch


def watch(
    file: RecognizerFile,
    inbox: Annotated[Path, typer.Argument(metavar="IN", help="The folder that fills.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A folder for folders by answer, and answers.csv.")],
    link: Link = False,
    move: Annotated[bool, typer.Option("--move", help="Move the pictures instead of copying them.")] = False,
    boxes: BoxesFile = None,
    min_confidence: MinConfidence = 0.2,
    settle: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds that a file must stay as it is, and between two looks.")
    ] = 2.0,
    last: Annotated[int, typer.Option(min=10, help="Photos whose share of unknowns is watched.")] = 200,
    once: Annotated[bool, typer.Option("--once", help="Sort what is there now, and end.")] = False,
    device: Device = "auto",
) -> None:
    """Sort new pictures of a folder by answer as they come, each once."""
    if link and move:
        raise RecipeError("a picture is linked or moved; give --link or --move, not both")
    check_there(inbox, boxes)
    check_recognizer(file)
    from glocal.bulk.places import Way, check_apart
    from glocal.bulk.watch import ANSWERS, Watch

    if not inbox.is_dir():
        raise DataError(f"{inbox} is no folder; name the folder that fills")
    check_apart(inbox, out)
    way = Way.move if move else Way.link if link else Way.copy
    with alone_at(out / ANSWERS):
        more: dict[str, Any] = {"min_confidence": min_confidence, "settle": settle, "last": last, "device": device}
        watching = Watch(file, inbox, out, way=way, boxes=boxes, **more)
        tell(f"{inbox}: {'sorting' if once else 'watching, Ctrl-C ends it'}; answers go to {out / ANSWERS}")
        try:
            placed = _watched(watching, settle, once)
        except KeyboardInterrupt:
            tell("ended; the same command goes on from here")
            return
    tell(f"{out}: {counted(placed, 'answer')} recorded")


def _watched(watching: Watch, settle: float, once: bool) -> int:
    """Look again and again, or twice; a disk that is full or away later on is mentioned and waited for."""
    placed, waiting = 0, ""
    for look in count():
        try:
            for rows, remarks in watching.look(time.monotonic()):
                for fields in rows:
                    typer.echo(printable(f"{fields['path']}: {fields['label'] or fields['error']}"))
                for remark in remarks:
                    tell(remark)
                placed += len(rows)
            waiting = ""
        except (GlocalError, OSError) as error:
            if once or not look:
                raise
            if waiting != str(error):
                tell(f"waiting: {error}")
            waiting = str(error)
        if once and look:
            break
        time.sleep(settle)
    return placed
