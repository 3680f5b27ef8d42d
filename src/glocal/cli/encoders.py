"""``glocal encoder`` and ``glocal push``: encoders from other people's networks, recognizers for a hub."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.console import check_free, check_there, show
from glocal.cli.options import Force, Half, Int8, Json, RecognizerFile
from glocal.cli.printing import tell
from glocal.common.errors import RecipeError

if TYPE_CHECKING:
    from glocal.recognizer.encoders.file import EncoderFile


def encoder(
    source: Annotated[
        str,
        typer.Argument(
            help="hf:ORG/NAME or a folder like one, onnx:FILE, timm:NAME or timm:NAME@WEIGHTS, or a run of training."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .encoder file to write.")],
    graph: Annotated[
        str, typer.Option(help="Of a repository with several graphs: its ending (fp16, quantized) or its path.")
    ] = "model",
    about: Annotated[
        Path | None, typer.Option(metavar="TOML", help="What the source does not say: size, mean, std, vector, map...")
    ] = None,
    fit: Annotated[
        Path | None, typer.Option(metavar="PHOTOS", help="Whiten vectors by any photos; of class folders, within them.")
    ] = None,
    half: Half = False,
    int8: Int8 = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Make an encoder of DINOv2, CLIP, SigLIP or another network, for `enroll --encoder`."""
    from glocal.recognizer.file import check_target

    if half and int8 is not None:
        raise RecipeError("--half and --int8 exclude each other; give one of them")
    check_target(out, ".encoder")
    check_free(out, force)
    check_there(about, fit, int8)
    try:
        from glocal.hub.about import read_about
        from glocal.hub.making import smaller
        from glocal.hub.whitening import whitened
    except ModuleNotFoundError as error:
        raise _needs(error, "hub") from error

    made = _made(source, graph, {} if about is None else read_about(about))
    if fit is not None:
        made = whitened(made, fit)
    compared: dict[str, int] = {}
    changed = ""
    if half or int8 is not None:
        made, differ, asked = smaller(made, int8)
        compared = {"labels_that_differ": differ, "asked": asked}
        changed = f"\n{differ} of {asked} pictures get another label than in single precision."
    made.write(out, new=not force)
    result: dict[str, Any] = {"file": str(out), "bytes": out.stat().st_size} | compared | made.record()
    licence = f"licence {made.licence}" if made.licence else "no licence stated"
    lines = (
        f"{out}: {made.name}, {made.precision}, {made.preprocess.size} pixels, {result['bytes'] / 2**20:.1f} MiB, "
        f"{licence}; {', '.join(f'{name} is {what}' for name, what in made.outputs.items())}.{changed}\n"
        f"Next: glocal enroll PHOTOS -o FILE.glocal --encoder {shlex.quote(str(out))}"
    )
    show(result, as_json=json, otherwise=lambda: lines)


def push(
    file: RecognizerFile,
    repository: Annotated[str, typer.Argument(help="hf:ORG/NAME; it is made if there is none.")],
    public: Annotated[bool, typer.Option("--public", help="A new repository is open to everybody.")] = False,
    json: Json = False,
) -> None:
    """Put a recognizer into a repository of a hub; `hf:ORG/NAME` loads it from there."""
    from glocal.common.hub import Repository

    place = Repository(repository)
    from glocal.hub.card import CARD, FILE, model_card
    from glocal.recognizer.recognizer import Recognizer

    card = model_card(Recognizer.load(file), place.name)
    address = place.push({FILE: file.read_bytes(), CARD: card.encode()}, f"Add {file.name}", private=not public)
    lines = f"{address}\nNext: Recognizer.load({repository!r})"
    show({"file": str(file), "commit": address}, as_json=json, otherwise=lambda: lines)


def _made(source: str, graph: str, given: dict[str, Any]) -> EncoderFile:
    from glocal.hub.making import from_place, located

    place = located(source, graph)
    if place is not None and place.graph is not None:
        return from_place(place, source, given)
    try:
        from glocal.research.convert.encoders import from_network
    except ModuleNotFoundError as error:
        raise _needs(error, "hf") from error
    tell(f"{source} has no graph; its network becomes one.")
    return from_network(source, given, None if place is None else place.folder)


def _needs(error: ModuleNotFoundError, extra: str) -> RecipeError:
    return RecipeError(f"this source needs {error.name}, which is not installed: pip install 'glocal[{extra}]'")
