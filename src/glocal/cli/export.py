"""``glocal export``: a recognizer for where no Python runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glocal.cli.console import check_there
from glocal.cli.options import RecognizerFile


def export(
    file: RecognizerFile,
    web: Annotated[Path, typer.Option(metavar="DIR", help="A new folder for a static page that answers offline.")],
    name: Annotated[str | None, typer.Option(help="Title of the page; the name of the file.")] = None,
) -> None:
    """Write a page that answers photos in a browser, also of a phone, without a network."""
    from glocal.recognizer.recognizer import Recognizer
    from glocal.web.export import export_web

    check_there(file)
    size = export_web(Recognizer.load(file), web, name=name or file.stem)
    typer.echo(f"{web}: {size / 1e6:.1f} MB, for any static host; to try it here: python -m http.server -d {web}")
