"""Trained models as graphs: ``glocal convert``, and a run that is named to the recognizer."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli.console import check_free, show
from glocal.cli.options import Force, Half, Int8, Json
from glocal.cli.printing import tell


def convert(
    run: Annotated[str, typer.Argument(help="A run folder, a checkpoint, a shipped model by name, or timm:NETWORK.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")],
    half: Half = False,
    int8: Int8 = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Turn a trained model into graphs that need no PyTorch, and compare their answers."""
    from glocal.common.errors import RecipeError

    if half and int8 is not None:
        raise RecipeError("--half and --int8 exclude each other; give one of them")
    check_free(out, force)
    from glocal.research.engine.records import find_checkpoint

    if not run.startswith("timm:"):
        find_checkpoint(run)
    from glocal.research.convert import convert_and_compare

    converted, agreement = convert_and_compare(run, half=half, int8=int8)
    converted.write(out, new=not force)
    size = sum(map(len, converted.graphs.values()))
    result = {
        "file": str(out),
        "precision": converted.precision,
        "bytes": size,
        "scores": list(converted.score_names),
        "differences": dict(agreement.differences),
        "queries": agreement.queries,
        "same_class": agreement.same_class,
    }
    show(
        result,
        as_json=json,
        otherwise=lambda: (
            f"{out}: {converted.method}, {converted.precision}, {size / 2**20:.1f} MiB; its answers differ from "
            f"those of {run} by at most {agreement.largest:.1e} of their spread, and {agreement.same_class} of "
            f"{agreement.queries} queries have the same most similar class.\n"
            f"Next: glocal enroll PHOTOS -o FILE.glocal --model {shlex.quote(str(out))}"
        ),
    )


if TYPE_CHECKING:
    from glocal.recognizer.converted import ConvertedModel


def model_of(source: str) -> str | ConvertedModel:
    """A file of ours, or the name of an encoder, as it is; a run, a checkpoint or a shipped model becomes graphs."""
    from glocal.recognizer.converted import is_converted
    from glocal.recognizer.encoders.builtin import ENCODERS
    from glocal.recognizer.file import holds_recognizer

    path = Path(source)
    if source in ENCODERS or is_converted(path) or (path.is_file() and holds_recognizer(path)):
        return source
    from glocal.research.convert import TIMM, convert
    from glocal.research.engine.checkpoint import find_checkpoint

    if not source.startswith(TIMM):
        find_checkpoint(source)  # a misspelt name is refused before anything is said
    tell(f"{source} becomes ONNX graphs; `glocal convert {source} -o FILE` keeps them.")
    return convert(source)
