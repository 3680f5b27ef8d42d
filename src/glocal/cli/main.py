"""``glocal``: the commands, grouped by who uses them.

Commands import what they need when they run, so that ``glocal --help`` answers at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from glocal import __version__
from glocal.cli.bulk import embed, similar
from glocal.cli.console import show
from glocal.cli.demo import demo
from glocal.cli.encoders import encoder, push
from glocal.cli.export import export
from glocal.cli.groups import group, suggest
from glocal.cli.listing import inventory
from glocal.cli.options import Json
from glocal.cli.practical import check, enroll, serve
from glocal.cli.predict import predict
from glocal.cli.recognizers import add, classes, inspect, remove, rename, threshold, undo
from glocal.cli.research.data import data
from glocal.cli.research.models import convert
from glocal.cli.research.reproduce import report, reproduce
from glocal.cli.research.studies import compare, evaluate, import_, pretrain, train
from glocal.cli.watch import watch
from glocal.common.errors import GlocalError
from glocal.common.memory import keep_freed_memory
from glocal.common.words import printable


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete all feature banks; they are built again.")] = False,
    json: Json = False,
) -> None:
    """Show where maps of encoded pictures are kept and how much room they take."""
    from glocal.common.cache import bank_sizes, cache_dir, clear_banks

    if clear:
        clear_banks()
    sizes = bank_sizes()
    total = sum(sizes.values())
    show(
        {"folder": str(cache_dir()), "banks": len(sizes), "bytes": total},
        as_json=json,
        otherwise=lambda: f"{len(sizes)} feature banks, {total / 2**20:.1f} MiB, in {cache_dir()}",
    )


RESEARCH = ("torch", "onnx", "onnxscript", "efficientnet_lite_pytorch")  # what glocal[research] brings
PRACTICE, RESEARCHERS = "Your own photos", "For researchers"

app = typer.Typer(
    name="glocal",
    help="Teach it classes from a few pictures; it names what it knows and calls the rest unknown.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for each in (
    enroll,
    predict,
    check,
    classes,
    add,
    remove,
    rename,
    undo,
    threshold,
    inspect,
    serve,
    watch,
    export,
    embed,
    similar,
    group,
    suggest,
    encoder,
    push,
):
    app.command(rich_help_panel=PRACTICE)(each)
app.command(rich_help_panel=PRACTICE)(demo)
app.command("list", rich_help_panel=PRACTICE)(inventory)
app.command(rich_help_panel=PRACTICE)(cache)
app.add_typer(data, name="data", rich_help_panel=RESEARCHERS)
for study in (pretrain, train, evaluate, compare, reproduce, report, convert):
    app.command(rich_help_panel=RESEARCHERS)(study)
app.command("import", rich_help_panel=RESEARCHERS)(import_)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"glocal {__version__}")
        raise typer.Exit


@app.callback()
def options(
    import_: Annotated[
        list[str],
        typer.Option("--import", metavar="FILE", help="A .py file or module that registers methods; repeatable."),
    ] = [],  # noqa: B006 - typer reads the default and never changes it
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    for source in import_:
        from glocal.research.plugins import import_file

        import_file(source)


def main() -> None:
    """Run a command; what the user can mend ends with one sentence and exit code 2."""
    keep_freed_memory()
    try:
        app()
    except GlocalError as error:
        typer.echo(printable(f"glocal: {error}"), err=True)
        sys.exit(getattr(error, "exit_code", 2))  # training that a signal stopped says which one
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in RESEARCH:
            raise
        needs = f"this command needs {error.name}, which is not installed"
        typer.echo(f"glocal: {needs}: pip install 'glocal[research]'", err=True)
        sys.exit(2)
    except OSError as error:  # a full disk, a folder without permission, a file in the place of a folder
        where = f"{error.filename}: " if error.filename else ""
        typer.echo(printable(f"glocal: {where}{error.strerror or error}"), err=True)
        sys.exit(2)
