"""``glocal serve``: the page and the HTTP API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glocal.cli.console import Device, Workers
from glocal.cli.printing import tell


def serve(
    file: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="A .glocal file; one that does not exist yet is made.")
    ] = Path("glocal.glocal"),
    host: Annotated[str, typer.Option(help="Where to listen; another address than this machine's needs --token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8800,
    token: Annotated[
        str | None, typer.Option(envvar="GLOCAL_TOKEN", help="Who has it may ask and change; nobody else.")
    ] = None,
    model: Annotated[str, typer.Option(help="For a new file: as in `glocal enroll`.")] = "photos-gel",
    queue: Annotated[int, typer.Option(min=1, help="Pictures that may wait; beyond that the answer is 429.")] = 256,
    workers: Workers = 2,
    device: Device = "auto",
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve a web page and an HTTP API: teach, ask, decide, review."""
    from glocal_runtime.errors import RecipeError

    try:
        from glocal.serve.app import run
        from glocal.serve.limits import Settings
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("glocal"):
            raise
        raise RecipeError(f"`glocal serve` needs {error.name}; pip install 'glocal[serve]'") from error

    def ready(address: str) -> None:
        tell(f"{file}: open {address}  (stop with Ctrl-C)")
        if open_:
            typer.launch(address)

    settings = Settings(token=token, queue=queue)
    run(file, host=host, port=port, model=model, device=device, workers=workers, settings=settings, ready=ready)
