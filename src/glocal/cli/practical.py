"""Commands for everybody: enroll, predict, check, serve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli.console import Device, Json, Workers, bars, show
from glocal.cli.printing import Printer, check_report, describe, rate_meter, summary, tell

if TYPE_CHECKING:
    from glocal_runtime.recognizer import Answered, Recognizer

RecognizerFile = Annotated[Path, typer.Argument(metavar="FILE", help="A .glocal file.")]
Promised = Annotated[
    float, typer.Option(help="The largest share of known photos that may be called unknown, as a promise.")
]


def enroll(
    folder: Annotated[Path, typer.Argument(help="A folder (or zip) with one folder of photos per class.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .glocal file to write.")],
    model: Annotated[
        str, typer.Option(help="A shipped model, a run folder, a checkpoint, a .glocal file, or timm:NETWORK.")
    ] = "photos-gel",
    score: Annotated[str | None, typer.Option(help="Another open score than the model's own.")] = None,
    max_false_unknown: Promised = 0.05,
    per_class: Annotated[bool, typer.Option("--per-class", help="A threshold of its own for each class.")] = False,
    unknown: Annotated[
        Path | None, typer.Option(help="A folder of photos of other things: they make the threshold better.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out photos that cannot be read.")] = False,
    workers: Workers = 2,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Teach it classes: photos/<class>/*.jpg in, one .glocal file out."""
    from glocal_runtime.file import check_target
    from glocal_runtime.recognizer import Recognizer

    check_target(out)
    with bars() as progress:
        recognizer = Recognizer.enroll(
            folder,
            model=model,
            score=score,
            max_false_unknown=max_false_unknown,
            per_class=per_class,
            unknown=unknown,
            skip_bad=skip_bad,
            device=device,
            workers=workers,
            progress=rate_meter(progress, "enroll"),
        )
    recognizer.save(out)
    for finding in recognizer.findings():
        tell(f"check-up: {finding}")
    show(
        summary(recognizer, out) | {"findings": [each.to_json() for each in recognizer.findings()]},
        as_json=json,
        otherwise=lambda: f"{out}: {describe(recognizer)}\nNext: glocal predict {out} PHOTOS...",
    )


def predict(
    file: RecognizerFile,
    images: Annotated[list[Path], typer.Argument(help="Pictures, and folders of pictures.")],
    csv: Annotated[Path | None, typer.Option(help="Write the answers to this .csv as they come.")] = None,
    jsonl: Annotated[Path | None, typer.Option(help="Write the answers to this .jsonl as they come.")] = None,
    explain: Annotated[
        Path | None, typer.Option(help="Write a picture per answer here: what matched in which photo.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted --csv or --jsonl.")] = False,
    workers: Workers = 2,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Name pictures, or call them unknown."""
    from glocal.recognizer.results import ResultFile
    from glocal_runtime.errors import DataError, RecipeError
    from glocal_runtime.photos import picture_files
    from glocal_runtime.prediction import Prediction
    from glocal_runtime.recognizer import Recognizer

    if csv is not None and jsonl is not None:
        raise RecipeError("answers go to one file: give --csv or --jsonl, not both")
    target = csv or jsonl
    if resume and target is None:
        raise RecipeError("--resume continues a file: name it with --csv or --jsonl")
    for path in images:
        if not path.exists() and not path.is_symlink():
            raise DataError(f"{path}: there is no such file or folder; check the path")
    recognizer = Recognizer.load(file, device=device, workers=workers)
    asked = answered = 0
    first_error = ""
    with ExitStack() as stack:
        write = None
        done: set[str] = set()
        if target is not None:
            results = ResultFile(target, recognizer.contents.identity)
            done = results.done(resume=resume)
            write = stack.enter_context(results.writing())
        printer = stack.enter_context(Printer(json, quiet=target is not None and not json))
        update = rate_meter(stack.enter_context(bars()), "predict")
        waiting = (path for path in picture_files(images) if str(path) not in done)
        for found in recognizer.batches(waiting):
            if write is not None:
                write(found.answers)
            for answer in found.answers:
                printer.put(answer)
                if isinstance(answer, Prediction):
                    answered += 1
                else:
                    first_error = first_error or f"cannot use picture {answer.path}: {answer.error}"
            if explain is not None:
                _explain(recognizer, found, len(done) + asked, explain)
            asked += len(found.answers)
            update(asked, None)
    if first_error and not answered:
        raise DataError(first_error)
    if target is not None:
        skipped = f"; {len(done)} were answered before" if done else ""
        tell(f"{target}: {answered} of {asked} pictures answered{skipped}")
    if first_error:
        tell(f"{asked - answered} of {asked} pictures cannot be used; the first: {first_error}")
        raise typer.Exit(1)


def check(
    file: RecognizerFile,
    labelled: Annotated[Path, typer.Argument(help="A folder with one folder of pictures per class, and unknown/.")],
    workers: Workers = 2,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Try it on labelled pictures before you trust it: confusion, rates with intervals, the worst pictures."""
    from glocal.recognizer.check import check as run
    from glocal_runtime.recognizer import Recognizer

    recognizer = Recognizer.load(file, device=device, workers=workers)
    with bars() as progress:
        found = run(recognizer, labelled, progress=rate_meter(progress, "check"))
    for remark in found.not_enrolled.values():
        tell(remark)
    for bad in found.unreadable:
        tell(f"left out {bad.path}: {bad.error}")
    show(found.to_json(), as_json=json, otherwise=lambda: check_report(found, recognizer))


def _explain(recognizer: Recognizer, found: Answered, before: int, folder: Path) -> None:
    from glocal_runtime.explain import explain, write_explanation
    from glocal_runtime.prediction import Prediction

    rows: Iterator[int] = iter(range(len(found.batch.readable)))
    for place, answer in enumerate(found.answers):
        if isinstance(answer, Prediction):
            image = explain(recognizer, found.batch, next(rows), answer)
            write_explanation(folder, before + place + 1, answer, image)


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
        from glocal.serve.security import Settings
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("glocal"):
            raise
        raise RecipeError(f"`glocal serve` needs {error.name}; pip install 'glocal[serve]'") from error

    given = context.get_parameter_source("token")
    kept = given is not None and given.name == "ENVIRONMENT"  # there so that nobody sees it

    def ready(address: str) -> None:
        shown = f"{address.partition('?')[0]}?token=..." if token and kept else address
        tell(f"{file}: open {shown}  (stop with Ctrl-C)")
        if open_:
            typer.launch(address)

    settings = Settings(token=token, queue=queue)
    run(file, host=host, port=port, model=model, device=device, workers=workers, settings=settings, ready=ready)
