"""``glocal predict``: answers on the screen, in a file, as folders, or as a stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from glocal.cli.bulk import answer_vectors, run_job
from glocal.cli.console import bars, check_free, check_there, rate_meter
from glocal.cli.options import (
    Address,
    BoxesFile,
    Device,
    Engine,
    EngineName,
    Force,
    Json,
    Link,
    MinConfidence,
    Out,
    RecognizerFile,
)
from glocal.cli.printing import printing, tell, tell_apart
from glocal.common.errors import DataError, RecipeError
from glocal.common.files import check_recognizer, or_not_written, write_text

if TYPE_CHECKING:
    from glocal.recognizer.photos.boxes import Boxes
    from glocal.recognizer.prediction import Prediction
    from glocal.recognizer.recognizer import Answered, Recognizer

    Asked: TypeAlias = Callable[[Recognizer, Collection[str]], tuple[Iterable[Answered], int | None]]

VECTORS_AT_ONCE = 1024
UNKNOWN_CODE = 3  # exit code with --fail-on-unknown
STDIN = "-"


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
    stream: Annotated[bool, typer.Option("--stream", help="With - as pictures: paths in, JSON lines out.")] = False,
    sort: Annotated[Path | None, typer.Option(help="Copy the pictures into folders by answer here.")] = None,
    link: Link = False,
    boxes: BoxesFile = None,
    min_confidence: MinConfidence = 0.2,
    boxes_out: Annotated[Path | None, typer.Option(help="Write MegaDetector's JSON again, with classes.")] = None,
    explain: Annotated[
        Path | None, typer.Option(help="Write a picture per answer here: what matched in which photo.")
    ] = None,
    fail_on_unknown: Annotated[
        bool, typer.Option("--fail-on-unknown", help=f"Exit with code {UNKNOWN_CODE} if a picture is unknown.")
    ] = False,
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
    images = images or []
    targets = {"--csv": csv, "--jsonl": jsonl, "--out": out}
    given = [name for name, path in targets.items() if path is not None]
    if len(given) > 1:
        raise RecipeError(f"answers go to one place: give {given[0]} or {given[1]}, not both")
    if resume and not given:
        raise RecipeError("--resume continues a file: name it with --csv, --jsonl or --out")
    if (vectors is None) == (not images):
        raise RecipeError("name pictures to look at, or the --vectors of some that were looked at before, not both")
    check_there(*([] if stream else images), *([] if vectors is None else [vectors]), *([boxes] if boxes else []))
    check_recognizer(file)
    from glocal.recognizer.file import read_contents, read_manifest

    of_vectors = vectors is not None and not read_manifest(file)["model"]["encoder"]["members"]
    if of_vectors and (out is not None or explain is not None or sort is not None or boxes is not None):
        raise RecipeError("answers to vectors have no pictures and go to the screen, --csv or --jsonl")
    if out is None and not of_vectors and (vectors is not None or engine is not EngineName.local):
        raise RecipeError("--vectors and --engine are for many answers: name a folder for them with --out")
    if force and (resume or out is not None):
        rest = "give one of the two" if resume else "to start --out anew, delete its folder"
        raise RecipeError(f"--force writes over --csv, --jsonl and --explain, --resume continues; {rest}")
    if out is not None and explain is not None:
        raise RecipeError("--explain draws a picture per answer, which is for a few of them: leave out --out")
    few = {"--sort": sort, "--boxes": boxes, "--boxes-out": boxes_out, "--fail-on-unknown": fail_on_unknown or None}
    mine = [name for name, value in few.items() if value is not None]
    if out is not None and mine:
        raise RecipeError(f"{mine[0]} is for pictures that are answered in order: leave out --out")
    if stream != (images == [STDIN]):
        raise RecipeError(f"paths from standard input are answered as they come: give {STDIN} and --stream, both")
    if stream and (given or explain or boxes):
        raise RecipeError("--stream writes JSON lines to standard output; leave out files of answers and --boxes")
    if resume and (sort or boxes_out):
        raise RecipeError(
            "--resume knows the answers of before and not their pictures: leave out --sort and --boxes-out, or use "
            "`glocal watch --once`, which goes on after an interruption"
        )
    if boxes_out is not None and boxes is None:
        raise RecipeError("--boxes-out writes the file of --boxes again: name it")
    if link and sort is None:
        raise RecipeError("--link is about --sort: name its folder")
    from glocal.bulk.addresses import check_clients
    from glocal.bulk.results import check_format
    from glocal.recognizer.photos.boxes import read_boxes
    from glocal.recognizer.recognizer import Recognizer

    target = csv or jsonl
    if target is not None:
        check_format(target)
    check_free(target, force, resume=resume)
    check_free(explain, force, resume=resume if target is not None else None)
    check_free(sort, force)
    check_free(boxes_out, force)
    check_clients([] if stream else images)
    if out is None:
        also: list[Callable[[Prediction], None]] = [] if sort is None else [_Sorted(sort, link, images).put]
        classified: dict[str, Mapping[str, float]] = {}
        ask: Asked = partial(_answered_photos, images)
        drawn = None if boxes is None else read_boxes(boxes, min_confidence=min_confidence)
        if drawn is not None:
            ask = partial(_answered_regions, images, drawn)
            if boxes_out is not None:
                drawn.classified({}, "")  # refuses what is not MegaDetector's
                also.append(lambda answer: classified.update({answer.path: answer.probabilities}))
        elif vectors is not None:
            ask = partial(_answered_vectors, Path(vectors))
        elif stream:
            ask = _answered_stream
        recognizer = Recognizer.load(file, device=device, workers=workers or 2)
        unusable, unknown = _predict_few(recognizer, ask, also, target, explain, resume, force, json, stream)
        if drawn is not None and boxes_out is not None:
            with or_not_written(boxes_out, "free some space or choose another place"):
                content = drawn.classified(classified, f"glocal {recognizer.contents.identity}")
                write_text(boxes_out, dumps(content, indent=1))
        if unusable or (unknown and fail_on_unknown):
            raise typer.Exit(1 if unusable else UNKNOWN_CODE)
    elif vectors is not None:
        answer_vectors(file, vectors, out, resume, device, json)
    else:
        # As who answers computes it: files of an earlier glocal record another.  The device is that of the workers.
        maker = read_contents(file, device="cpu").identity
        job = ("answers", str(file), maker, images, device)
        run_job(*job, out=out, resume=resume, engine=engine, address=address, workers=workers, json=json)


class _Sorted:
    """Pictures go into folders by answer."""

    def __init__(self, folder: Path, link: bool, images: Iterable[str]) -> None:
        from glocal.bulk.places import Way, check_apart

        self._folder, self._way, self._taken = folder, Way.link if link else Way.copy, set[str]()
        self._roots = [Path(os.path.abspath(each)) for each in images if os.path.isdir(each)]
        for root in self._roots:
            check_apart(root, folder)

    def put(self, answer: Prediction) -> None:
        from glocal.bulk.addresses import is_remote, local_path
        from glocal.bulk.places import free_place, put

        name, _, number = (answer.path, "", "") if answer.box is None else answer.path.rpartition("#")
        if is_remote(name):
            raise DataError(f"{name} is no file of this machine, so it cannot be sorted; copy it here first")
        path = Path(os.path.abspath(local_path(name)))  # a list may lead out of a folder and back
        root = next((root for root in self._roots if path.is_relative_to(root)), path.parent)
        place = free_place(self._folder, answer.label, str(path.relative_to(root)), self._taken, number)
        with or_not_written(self._folder, "free some space or choose another place"):
            put(path, self._folder / place, self._way, answer.box)


def _predict_few(
    recognizer: Recognizer,
    ask: Asked,
    also: list[Callable[[Prediction], None]],
    target: Path | None,
    explain: Path | None,
    resume: bool,
    force: bool,
    json: bool,
    stream: bool,
) -> tuple[int, int]:
    """In this process and in order, with words; how many cannot be used, and how many are unknown."""
    from glocal.bulk.results import ResultFile, plain
    from glocal.recognizer.prediction import Prediction

    asked = answered = unknown = 0
    first_error = ""
    with ExitStack() as stack:
        write = None
        done: set[str] = set()
        if target is not None:
            results = ResultFile(target, recognizer.contents.identity)
            stack.enter_context(results.alone())
            done = results.done(resume=resume, force=force)
            write = stack.enter_context(results.writing())
        put = stack.enter_context(printing(json and not stream, quiet=target is not None))
        update = rate_meter(stack.enter_context(bars()), "predict")
        parts, total = ask(recognizer, done)
        for part in parts:
            if explain is not None:  # first, because pictures with a row are not looked at again
                with or_not_written(explain, "free some space or choose another place"):
                    _explain(recognizer, part, len(done) + asked, explain)
            if write is not None:
                write(part.answers)
            for answer in part.answers:
                if stream:
                    typer.echo(dumps(plain(answer)))
                else:
                    put(answer)
                if isinstance(answer, Prediction):
                    answered += 1
                    unknown += answer.is_unknown
                    for act in also:
                        act(answer)
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
    return asked - answered, unknown


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


def _answered_regions(
    images: list[str], boxes: Boxes, recognizer: Recognizer, done: Collection[str]
) -> tuple[Iterable[Answered], int | None]:
    from glocal.bulk.addresses import addresses, source_of
    from glocal.recognizer.photos.sources import regions_of

    regions, apart = regions_of(map(source_of, addresses(images)), boxes)
    tell_apart(boxes, apart)
    waiting = [each for each in regions if each.name not in done]
    return recognizer.batches(waiting), len(waiting)


def _answered_stream(recognizer: Recognizer, done: Collection[str]) -> tuple[Iterable[Answered], int | None]:
    """Paths from standard input; what has come is answered without waiting for more."""
    from glocal.bulk.addresses import source_of

    pieces = _as_they_come(os.fsdecode(line.rstrip(b"\r\n")) for line in sys.stdin.buffer)
    return (part for paths in pieces for part in recognizer.batches(map(source_of, paths))), None


def _as_they_come(lines: Iterator[str]) -> Iterator[list[str]]:
    """All lines that are there, at least one and at most a batch; empty ones do not count."""
    from queue import Queue
    from threading import Thread

    from glocal.recognizer.batches import BATCH

    queue: Queue[str | None] = Queue(4 * BATCH)

    def read() -> None:
        for line in lines:
            if line:
                queue.put(line)
        queue.put(None)

    Thread(target=read, daemon=True).start()
    line = queue.get()
    while line is not None:
        some = [line]
        line = ""
        while len(some) < BATCH and not queue.empty() and (line := queue.get()):
            some.append(line)
        yield some
        if line is not None:
            line = queue.get()


def _explain(recognizer: Recognizer, answered: Answered, before: int, folder: Path) -> None:
    from glocal.recognizer.explanation import explain, write_explanation
    from glocal.recognizer.prediction import Prediction

    rows: Iterator[int] = iter(range(len(answered.batch.readable)))
    for place, answer in enumerate(answered.answers):
        if isinstance(answer, Prediction):
            image = explain(recognizer, answered.batch, next(rows), answer)
            write_explanation(folder, before + place + 1, answer, image)
