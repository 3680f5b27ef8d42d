"""Commands for everybody: enroll, check, serve."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.console import bars, check_free, check_there, rate_meter, show
from glocal.cli.options import (
    BoxesFile,
    Device,
    Force,
    Json,
    MinConfidence,
    RecognizerFile,
    SkipBad,
    Workers,
    check_together,
)
from glocal.cli.printing import check_report, describe, summary, tell, tell_apart, threshold_lines
from glocal.cli.recognizers import changing
from glocal.cli.research.models import model_of
from glocal.common.errors import RecipeError
from glocal.common.words import counted

if TYPE_CHECKING:
    from glocal.recognizer.photos.sources import Source

TargetRate = Annotated[float, typer.Option(help="The share of known photos called unknown, on average.")]


def enroll(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", "-o", help="The .glocal file to write.")],
    folder: Annotated[
        Path | None, typer.Argument(help="A folder (or zip) with one folder of photos per class.")
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="Instead, vectors of any program: .npz or .parquet with vectors and labels.")
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="fast, better (3 times the time), or a file that `glocal encoder` wrote.")
    ] = "fast",
    head: Annotated[str, typer.Option(help="ridge, prototypes, or gel (on fast).")] = "ridge",
    model: Annotated[
        str | None, typer.Option(help="In place of both: a .glocal file, a converted model, or a run of training.")
    ] = None,
    score: Annotated[str | None, typer.Option(help="Another open score than the head's own.")] = None,
    target_rate: TargetRate = 0.05,
    unknown: Annotated[
        Path | None, typer.Option(help="A folder of photos of other things: it learns to tell them apart.")
    ] = None,
    with_unknown: Annotated[
        float | None,
        typer.Option(help="With --unknown: the share of known photos called unknown that catching them may cost."),
    ] = None,
    link_encoder: Annotated[
        bool, typer.Option("--link-encoder", help="Name the .encoder file by its hash instead of holding it.")
    ] = False,
    boxes: BoxesFile = None,
    min_confidence: MinConfidence = 0.2,
    skip_bad: SkipBad = False,
    force: Force = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Teach it classes: photos/<class>/*.jpg in, one .glocal file out; unknown/ is others."""
    from_encoder = "--encoder --model --unknown --link-encoder --boxes"
    check_together(context, {}, [("--vectors", from_encoder, "vectors come from an encoder already")])
    if (vectors is None) == (folder is None):
        raise RecipeError("name a folder of photos, or --vectors, one of the two", code="nothing-given")
    from glocal.recognizer.file import check_target
    from glocal.recognizer.recognizer import Recognizer

    check_target(out)
    check_free(out, force)
    check_there(vectors, unknown, boxes)
    decision: dict[str, Any] = {"head": head, "score": score, "target_rate": target_rate, "with_unknown": with_unknown}
    if vectors is not None:
        from glocal.bulk.vector_files import read_vectors

        table = read_vectors(vectors)
        if table.labels is None:
            raise RecipeError(f"{vectors} has no column 'labels' with the class of each vector", code="no-labels")
        recognizer = Recognizer.enroll_vectors(table.vectors, table.labels, names=table.names, **decision)
    elif folder is not None:
        source = None if model is None else model_of(model)
        decision |= {"encoder": encoder, "model": source, "unknown": unknown, "link_encoder": link_encoder}
        photos = folder if boxes is None else _regions(folder, boxes, min_confidence)
        with bars() as progress:
            update = rate_meter(progress, "enroll")
            recognizer = Recognizer.enroll(photos, skip_bad=skip_bad, device=device, progress=update, **decision)
    recognizer.save(out, new=not force)
    findings = recognizer.findings()
    for finding in findings:
        tell(f"check-up: {finding}")
    asked = "PHOTOS..." if vectors is None else "--vectors FILE"
    show(
        summary(recognizer, out) | {"findings": [each.to_json() for each in findings]},
        as_json=json,
        otherwise=lambda: f"{out}: {describe(recognizer)}\nNext: glocal predict {shlex.quote(str(out))} {asked}",
    )


def check(
    file: RecognizerFile,
    labelled: Annotated[Path, typer.Argument(help="A folder with one folder of pictures per class, and unknown/.")],
    learn: Annotated[
        bool,
        typer.Option("--learn", help="Let the pictures of the classes tighten the threshold; nothing is enrolled."),
    ] = False,
    boxes: BoxesFile = None,
    min_confidence: MinConfidence = 0.2,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Try it on labelled pictures: confusion, rates with intervals, the worst pictures."""
    check_there(labelled, boxes)
    from glocal.recognizer.diagnosis.advice import Finding
    from glocal.recognizer.diagnosis.check import check as run
    from glocal.recognizer.diagnosis.check import learn as learn_from

    with changing(file, device, wanted=learn) as (recognizer, save):
        photos = labelled if boxes is None else _regions(labelled, boxes, min_confidence)
        with bars() as progress:
            checked = run(recognizer, photos, progress=rate_meter(progress, "check"))
        beside = [Finding.loose(checked.loose).text] if checked.loose else []
        for remark in (*checked.not_enrolled.values(), *beside):
            tell(remark)
        for bad in checked.unreadable:
            tell(f"left out {bad.path}: {bad.error}")
        show(checked.to_json(), as_json=json, otherwise=lambda: check_report(checked, recognizer))
        if learn:
            confirmed = learn_from(recognizer, checked)
            save("pictures confirmed", recognizer.save)
            tell(f"{counted(confirmed, 'confirmed picture')} joined the leave-one-out scores")
            for line in threshold_lines(recognizer):
                tell(line)


def _regions(folder: Path, file: Path, min_confidence: float) -> dict[str, list[Source]]:
    """The regions of the pictures of a folder by class, and what the file and the folder do not share in words."""
    from glocal.recognizer.photos.boxes import read_boxes
    from glocal.recognizer.photos.sources import labelled_regions

    boxes = read_boxes(file, min_confidence=min_confidence)
    by_class, regions = labelled_regions(folder, boxes)
    tell_apart(boxes, regions)
    return by_class


def serve(
    context: typer.Context,
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
    model: Annotated[str, typer.Option(help="For a new file: as in `glocal enroll`.")] = "fast",
    queue: Annotated[int, typer.Option(min=1, help="Pictures that may wait; beyond that the answer is 429.")] = 256,
    recent: Annotated[
        Path | None, typer.Option(help="A folder that keeps small copies of the recent photos over a restart.")
    ] = None,
    workers: Workers = 2,
    device: Device = "auto",
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve a web page and an HTTP API: teach, ask, decide, review."""
    try:
        from glocal.serve.app import run
        from glocal.serve.security import Settings
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("glocal"):
            raise
        raise RecipeError(f"`glocal serve` needs {error.name}; pip install {error.name}") from error

    given = context.get_parameter_source("token")
    kept = given is not None and given.name == "ENVIRONMENT"  # there so that nobody sees it

    def ready(address: str) -> None:
        shown = f"{address.partition('?')[0]}?token=..." if token and kept else address
        tell(f"{file}: open {shown}  (stop with Ctrl-C)")
        if open_:
            typer.launch(address)

    settings = Settings(token=token, queue=queue)
    more: dict[str, Any] = {"device": device, "workers": workers, "recent": recent, "settings": settings}
    run(file, host=host, port=port, model=model, ready=ready, **more)
