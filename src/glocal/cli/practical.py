"""Commands for everybody: enroll, predict, check, serve."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from glocal.cli.bulk import answer_vectors, run_job
from glocal.cli.console import bars, check_free, check_there, rate_meter, show
from glocal.cli.options import Address, Device, Engine, EngineName, Force, Json, Out, RecognizerFile, SkipBad, Workers
from glocal.cli.printing import check_report, describe, printing, summary, tell, threshold_lines
from glocal.cli.recognizers import changing
from glocal.cli.research.models import model_of
from glocal.common.words import counted

if TYPE_CHECKING:
    from glocal.recognizer.recognizer import Answered, Recognizer

    Asked: TypeAlias = Callable[[Recognizer, Collection[str]], tuple[Iterable[Answered], int | None]]

VECTORS_AT_ONCE = 1024
TargetRate = Annotated[float, typer.Option(help="The share of known photos called unknown, on average.")]


def enroll(
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
    skip_bad: SkipBad = False,
    force: Force = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Teach it classes: photos/<class>/*.jpg in, one .glocal file out; unknown/ is others."""
    from glocal.recognizer.file import check_target
    from glocal.recognizer.recognizer import Recognizer

    check_target(out)
    check_free(out, force)
    from glocal.common.errors import RecipeError

    check_there(*(each for each in (vectors, unknown) if each))
    decision: dict[str, Any] = {"head": head, "score": score, "target_rate": target_rate, "with_unknown": with_unknown}
    if (vectors is None) == (folder is None):
        raise RecipeError("name a folder of photos, or --vectors, one of the two", code="nothing-given")
    if folder is None:
        assert vectors is not None
        if encoder != "fast" or model is not None or unknown is not None or link_encoder:
            raise RecipeError("--vectors come from an encoder already, so --encoder, --model and --unknown do not fit")
        from glocal.bulk.vector_files import read_vectors

        table = read_vectors(vectors)
        if table.labels is None:
            raise RecipeError(f"{vectors} has no column 'labels' with the class of each vector", code="no-labels")
        recognizer = Recognizer.enroll_vectors(table.vectors, table.labels, names=table.names, **decision)
    else:
        source = None if model is None else model_of(model)
        with bars() as progress:
            recognizer = Recognizer.enroll(
                folder,
                encoder=encoder,
                model=source,
                unknown=unknown,
                link_encoder=link_encoder,
                skip_bad=skip_bad,
                device=device,
                progress=rate_meter(progress, "enroll"),
                **decision,
            )
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


def predict(
    file: RecognizerFile,
    images: Annotated[
        list[str] | None,
        typer.Argument(help="Pictures, folders, globs, zips, addresses (s3://...), lists with a column uri."),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the answers to this .csv as they come.")] = None,
    jsonl: Annotated[Path | None, typer.Option(help="Write the answers to this .jsonl as they come.")] = None,
    out: Out = None,
    vectors: Annotated[
        str | None,
        typer.Option(help="Instead of pictures, what `glocal embed` wrote, or vectors as for enroll."),
    ] = None,
    explain: Annotated[
        Path | None, typer.Option(help="Write a picture per answer here: what matched in which photo.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted --csv, --jsonl or --out.")] = False,
    force: Force = False,
    engine: Engine = EngineName.local,
    address: Address = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes of --out (one per core); otherwise threads that decode pictures (2)."),
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Name pictures, or call them unknown: a few on the screen, or any number with --out."""
    from glocal.common.errors import RecipeError

    images = images or []
    targets = {"--csv": csv, "--jsonl": jsonl, "--out": out}
    given = [name for name, path in targets.items() if path is not None]
    if len(given) > 1:
        raise RecipeError(f"answers go to one place: give {given[0]} or {given[1]}, not both")
    if resume and not given:
        raise RecipeError("--resume continues a file: name it with --csv, --jsonl or --out")
    if (vectors is None) == (not images):
        raise RecipeError("name pictures to look at, or the --vectors of some that were looked at before, not both")
    check_there(*images, *([] if vectors is None else [vectors]))
    from glocal.common.files import check_recognizer

    check_recognizer(file)
    from glocal.recognizer.file import read_contents, read_manifest

    of_vectors = vectors is not None and not read_manifest(file)["model"]["encoder"]["members"]
    if of_vectors and (out is not None or explain is not None):
        raise RecipeError("answers to vectors have no pictures and go to the screen, --csv or --jsonl")
    if out is None and not of_vectors and (vectors is not None or engine is not EngineName.local):
        raise RecipeError("--vectors and --engine are for many answers: name a folder for them with --out")
    if force and (resume or out is not None):
        rest = "give one of the two" if resume else "to start --out anew, delete its folder"
        raise RecipeError(f"--force writes over --csv, --jsonl and --explain, --resume continues; {rest}")
    if out is not None and explain is not None:
        raise RecipeError("--explain draws a picture per answer, which is for a few of them: leave out --out")
    from glocal.bulk.addresses import check_clients
    from glocal.bulk.results import check_format

    target = csv or jsonl
    if target is not None:
        check_format(target)
    check_free(target, force, resume=resume)
    check_free(explain, force, resume=resume if target is not None else None)
    check_clients(images)
    if out is None:
        asked = partial(_answered_photos, images) if vectors is None else partial(_answered_vectors, Path(vectors))
        _predict_few(file, asked, target, explain, resume, force, workers or 2, device, json)
    elif vectors is not None:
        answer_vectors(file, vectors, out, resume, device, json)
    else:
        # As who answers computes it: files of an earlier glocal record another.  The device is that of the workers.
        maker = read_contents(file, device="cpu").identity
        job = ("answers", str(file), maker, images, device)
        run_job(*job, out=out, resume=resume, engine=engine, address=address, workers=workers, json=json)


def _predict_few(
    file: Path,
    ask: Asked,
    target: Path | None,
    explain: Path | None,
    resume: bool,
    force: bool,
    workers: int,
    device: str,
    json: bool,
) -> None:
    """In this process and in order, with words."""
    from glocal.bulk.results import ResultFile
    from glocal.common.errors import DataError
    from glocal.common.files import or_not_written
    from glocal.recognizer.prediction import Prediction
    from glocal.recognizer.recognizer import Recognizer

    recognizer = Recognizer.load(file, device=device, workers=workers)
    asked = answered = 0
    first_error = ""
    with ExitStack() as stack:
        write = None
        done: set[str] = set()
        if target is not None:
            results = ResultFile(target, recognizer.contents.identity)
            stack.enter_context(results.alone())
            done = results.done(resume=resume, force=force)
            write = stack.enter_context(results.writing())
        put = stack.enter_context(printing(json, quiet=target is not None))
        update = rate_meter(stack.enter_context(bars()), "predict")
        parts, total = ask(recognizer, done)
        for part in parts:
            if explain is not None:  # first, because pictures with a row are not looked at again
                with or_not_written(explain, "free some space or choose another place"):
                    _explain(recognizer, part, len(done) + asked, explain)
            if write is not None:
                write(part.answers)
            for answer in part.answers:
                put(answer)
                if isinstance(answer, Prediction):
                    answered += 1
                else:
                    first_error = first_error or f"cannot use picture {answer.path}: {answer.error}"
            asked += len(part.answers)
            update(asked, total)
    if first_error and not answered:
        raise DataError(first_error)
    if target is not None:
        skipped = f"; {len(done)} were answered before" if done else ""
        tell(f"{target}: {answered} of {asked} pictures answered{skipped}")
    if first_error:
        tell(f"{asked - answered} of {asked} pictures cannot be used; the first: {first_error}")
        raise typer.Exit(1)


def _answered_photos(
    images: list[str], recognizer: Recognizer, done: Collection[str]
) -> tuple[Iterable[Answered], int | None]:
    """Those that are not done, and how many they are."""
    from glocal.bulk.addresses import addresses, is_remote, source_of

    # Counted by listing twice, so that no list of all of them is in memory; storage elsewhere is listed once.
    total = None if any(map(is_remote, images)) else sum(uri not in done for uri in addresses(images))
    return recognizer.batches(source_of(uri) for uri in addresses(images) if uri not in done), total


def _answered_vectors(
    file: Path, recognizer: Recognizer, done: Collection[str]
) -> tuple[Iterable[Answered], int | None]:
    from glocal.bulk.vector_files import read_vectors
    from glocal.recognizer.recognizer import Answered
    from glocal.recognizer.vectors import vector_batch

    table = read_vectors(file)
    names = table.names or [f"vector {i}" for i in range(len(table.vectors))]
    rows = [i for i, name in enumerate(names) if name not in done]

    def answered() -> Iterator[Answered]:
        for start in range(0, len(rows), VECTORS_AT_ONCE):
            some = rows[start : start + VECTORS_AT_ONCE]
            batch = vector_batch(table.vectors[some], [names[i] for i in some], length=recognizer.n_numbers)
            yield Answered(batch, recognizer.answer(batch))

    return answered(), len(rows)


def check(
    file: RecognizerFile,
    labelled: Annotated[Path, typer.Argument(help="A folder with one folder of pictures per class, and unknown/.")],
    learn: Annotated[
        bool,
        typer.Option("--learn", help="Let the pictures of the classes tighten the threshold; nothing is enrolled."),
    ] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Try it on labelled pictures: confusion, rates with intervals, the worst pictures."""
    check_there(labelled)
    from glocal.recognizer.diagnosis.advice import Finding
    from glocal.recognizer.diagnosis.check import check as run
    from glocal.recognizer.diagnosis.check import learn as learn_from

    with changing(file, device, wanted=learn) as (recognizer, save):
        with bars() as progress:
            checked = run(recognizer, labelled, progress=rate_meter(progress, "check"))
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


def _explain(recognizer: Recognizer, answered: Answered, before: int, folder: Path) -> None:
    from glocal.recognizer.explanation import explain, write_explanation
    from glocal.recognizer.prediction import Prediction

    rows: Iterator[int] = iter(range(len(answered.batch.readable)))
    for place, answer in enumerate(answered.answers):
        if isinstance(answer, Prediction):
            image = explain(recognizer, answered.batch, next(rows), answer)
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
    from glocal.common.errors import RecipeError

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
    run(
        file,
        host=host,
        port=port,
        model=model,
        device=device,
        workers=workers,
        recent=recent,
        settings=settings,
        ready=ready,
    )
