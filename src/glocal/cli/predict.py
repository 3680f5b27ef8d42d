"""``glocal predict``: answers on the screen, in a file, as folders, or as a stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from glocal.cli import options
from glocal.cli.bulk import answer_vectors, run_job
from glocal.cli.console import bars, check_free, check_there, rate_meter
from glocal.cli.printing import printing, tell, tell_apart
from glocal.common.errors import DataError, RecipeError
from glocal.common.files import check_recognizer, or_not_written, write_text

if TYPE_CHECKING:
    from glocal.bulk.results import Answer
    from glocal.recognizer.photos.boxes import Boxes
    from glocal.recognizer.prediction import Prediction
    from glocal.recognizer.recognizer import Answered, Recognizer

    Asked: TypeAlias = tuple[Iterable[Answered], int | None]  # answers part by part, and how many if that is known
    Act: TypeAlias = Callable[[Answered], None]

VECTORS_AT_ONCE = 1024
UNKNOWN_CODE = 3  # exit code with --fail-on-unknown
STDIN = "-"
ROOM = "free some space or choose another place"
NEEDS = {"--resume": "--csv --jsonl --out", "--engine": "--out", "--boxes-out": "--boxes", "--link": "--sort"}
APART = (
    ("--csv", "--jsonl --out", "answers go to one place"),
    ("--jsonl", "--out", "answers go to one place"),
    ("--out", "--explain --sort --boxes --fail-on-unknown --group", "they are for pictures that are answered in order"),
    ("--vectors", "--explain --sort --boxes --group", "vectors have no pictures"),
    ("--stream", "--csv --jsonl --out --explain --boxes --group", "a stream of JSON lines goes to standard output"),
    ("--force", "--resume", "one writes over a file, the other continues it"),
    ("--force", "--out", "delete the folder to start anew"),
    ("--resume", "--sort --boxes-out", "pictures answered before are not looked at again; see glocal watch --once"),
)


def predict(
    context: typer.Context,
    file: options.RecognizerFile,
    images: Annotated[
        list[str] | None,
        typer.Argument(help="Pictures, folders, globs, zips, addresses (s3://...), lists with a column uri."),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the answers to this .csv as they come.")] = None,
    jsonl: Annotated[Path | None, typer.Option(help="Write the answers to this .jsonl as they come.")] = None,
    out: options.Out = None,
    vectors: Annotated[
        str | None, typer.Option(help="Of `glocal embed`, or as for enroll, in place of pictures.")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="With - as pictures: paths in, JSON lines out.")] = False,
    sort: Annotated[Path | None, typer.Option(help="Copy the pictures into folders by answer here.")] = None,
    link: options.Link = False,
    boxes: options.BoxesFile = None,
    min_confidence: options.MinConfidence = 0.2,
    boxes_out: Annotated[Path | None, typer.Option(help="Write MegaDetector's JSON again, with classes.")] = None,
    explain: Annotated[Path | None, typer.Option(help="Write a picture per answer here: what matched where.")] = None,
    group: Annotated[bool, typer.Option("--group", help="Say which unknown pictures show the same thing.")] = False,
    fail_on_unknown: Annotated[bool, typer.Option("--fail-on-unknown", help="Exit with 3 if one is unknown.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted --csv, --jsonl or --out.")] = False,
    force: options.Force = False,
    engine: options.Engine = options.EngineName.local,
    address: options.Address = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes of --out (1 per core); else threads (2).")
    ] = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Name pictures, or call them unknown: a few on the screen, or any number with --out."""
    options.check_together(context, NEEDS, APART)
    images = images or []
    if (vectors is None) == (not images):
        raise RecipeError("name pictures to look at, or the --vectors of some that were looked at before, not both")
    if stream != (images == [STDIN]):
        raise RecipeError(f"paths from standard input are answered as they come: give {STDIN} and --stream, both")
    named = [] if stream else images
    check_there(*named, vectors, boxes)
    check_recognizer(file)
    from glocal.bulk.addresses import check_clients
    from glocal.bulk.places import check_apart
    from glocal.bulk.results import check_format
    from glocal.recognizer.file import read_contents, read_manifest
    from glocal.recognizer.groups import Unknowns
    from glocal.recognizer.photos.boxes import read_boxes
    from glocal.recognizer.recognizer import Recognizer

    if vectors is not None and bool(read_manifest(file)["model"]["encoder"]["members"]) == (out is None):
        raise RecipeError(
            "--vectors that `glocal embed` wrote are answered with --out; those of other programs go to the screen, "
            "--csv or --jsonl"
        )
    target = csv or jsonl
    if target is not None:
        check_format(target)
    check_free(target, force, resume=resume)
    for path in (explain, sort, boxes_out):
        check_free(path, force or resume)
    check_clients(named)
    if sort is not None:
        for folder in filter(os.path.isdir, images):
            check_apart(Path(folder), sort)
    if out is not None:
        if vectors is not None:
            answer_vectors(file, vectors, out, resume, device, json)
            return
        # As who answers computes it: files of an earlier glocal record another.  The device is that of the workers.
        maker = read_contents(file, device="cpu").identity
        job = ("answers", str(file), maker, images, device)
        run_job(*job, out=out, resume=resume, engine=engine, address=address, workers=workers, json=json)
        return
    regions = None if boxes is None else read_boxes(boxes, min_confidence=min_confidence)
    if regions is not None and boxes_out is not None:
        regions.classified({}, "")  # refuses what is not MegaDetector's
    recognizer = Recognizer.load(file, device=device, workers=workers or 2)
    probabilities: dict[str, Mapping[str, float]] = {}
    unknowns = Unknowns()
    with (
        _results(target, recognizer, resume, force) as (done, write),
        printing(json, quiet=target is not None, lines=stream) as put,
    ):
        if vectors is not None:
            asked = _answered_vectors(Path(vectors), recognizer, done)
        elif regions is not None:
            asked = _answered_regions(images, regions, recognizer, done)
        else:
            asked = _answered_stream(recognizer) if stream else _answered_photos(images, recognizer, done)
        acts: list[Act] = [lambda part: write(part.answers), lambda part: put(part.answers)]
        if explain is not None:  # first, because pictures with a row are not looked at again
            acts.insert(0, partial(_explain, recognizer, count(len(done) + 1), explain))
        if sort is not None:
            acts.append(partial(_sort, sort, link, images))
        if boxes_out is not None:
            acts.append(
                lambda part: probabilities.update((each.path, each.probabilities) for each in _predictions(part))
            )
        if group:
            acts.append(lambda part: unknowns.add(part.batch, part.answers))
        n, unknown, errors = _work_through(asked, acts)
    if errors and len(errors) == n:
        raise DataError(errors[0])
    if regions is not None and boxes_out is not None:
        with or_not_written(boxes_out, ROOM):
            content = regions.classified(probabilities, f"glocal {recognizer.contents.identity}")
            write_text(boxes_out, dumps(content, indent=1))
    for i, alike in enumerate(unknowns.groups(recognizer.contents.support) if unknowns.answers else ()):
        if len(alike) > 1:
            tell(f"group {i + 1}: {', '.join(each.path for each in alike)}")
    if target is not None:
        skipped = f"; {len(done)} were answered before" if done else ""
        tell(f"{target}: {n - len(errors)} of {n} pictures answered{skipped}")
    if errors:
        tell(f"{len(errors)} of {n} pictures cannot be used; the first: {errors[0]}")
    if errors or (unknown and fail_on_unknown):
        raise typer.Exit(1 if errors else UNKNOWN_CODE)


@contextmanager
def _results(
    path: Path | None, recognizer: Recognizer, resume: bool, force: bool
) -> Iterator[tuple[Collection[str], Callable[[Iterable[Answer]], None]]]:
    """The pictures that a file of answers has already, and a function that adds answers to it."""
    from glocal.bulk.results import ResultFile

    if path is None:
        yield (), lambda answers: None
        return
    results = ResultFile(path, recognizer.contents.identity)
    with results.alone():
        done = results.done(resume=resume, force=force)
        with results.writing() as write:
            yield done, write


def _work_through(asked: Asked, acts: list[Act]) -> tuple[int, int, list[str]]:
    """How many pictures, how many of them are unknown, and a sentence about each that cannot be used."""
    from glocal.recognizer.photos.sources import Unreadable

    n, unknown, errors = 0, 0, list[str]()
    parts, total = asked
    with bars() as progress:
        update = rate_meter(progress, "predict")
        for part in parts:
            for act in acts:
                act(part)
            n += len(part.answers)
            unknown += sum(each.is_unknown for each in _predictions(part))
            bad = (each for each in part.answers if isinstance(each, Unreadable))
            errors += [f"cannot use picture {each.path}: {each.error}" for each in bad]
            update(n, total)
    return n, unknown, errors


def _predictions(part: Answered) -> list[Prediction]:
    from glocal.recognizer.prediction import Prediction

    return [each for each in part.answers if isinstance(each, Prediction)]


def _sort(folder: Path, link: bool, images: list[str], part: Answered) -> None:
    """Put the pictures of a part into folders by answer."""
    from glocal.bulk.addresses import local_path
    from glocal.bulk.places import Way, free_place, put

    for answer in _predictions(part):
        name = answer.path if answer.box is None else answer.path.rpartition("#")[0]
        path = Path(os.path.abspath(local_path(name)))  # a list may lead out of a folder and back
        if not path.is_file():
            raise DataError(f"{name} is no file of this machine, so it cannot be sorted; copy it here first")
        roots = (Path(os.path.abspath(each)) for each in images)
        root = next((each for each in roots if each in path.parents), path.parent)
        below = Path(f"{path.relative_to(root)}{answer.path.removeprefix(name)}")
        with or_not_written(folder, ROOM):
            place = free_place(folder, answer.label, below)
            put(path, folder / place, Way.link if link else Way.copy, answer.box)


def _answered_photos(images: list[str], recognizer: Recognizer, done: Collection[str]) -> Asked:
    """Those that are not done, and how many they are."""
    from glocal.bulk.addresses import addresses, is_remote, source_of

    # Counted by listing twice, so that no list of all of them is in memory; storage elsewhere is listed once.
    total = None if any(map(is_remote, images)) else sum(uri not in done for uri in addresses(images))
    return recognizer.batches(source_of(uri) for uri in addresses(images) if uri not in done), total


def _answered_vectors(file: Path, recognizer: Recognizer, done: Collection[str]) -> Asked:
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


def _answered_regions(images: list[str], boxes: Boxes, recognizer: Recognizer, done: Collection[str]) -> Asked:
    from glocal.bulk.addresses import addresses, source_of
    from glocal.recognizer.photos.sources import regions_of

    regions, apart = regions_of(map(source_of, addresses(images)), boxes)
    tell_apart(boxes, apart)
    waiting = [each for each in regions if each.name not in done]
    return recognizer.batches(waiting), len(waiting)


def _answered_stream(recognizer: Recognizer) -> Asked:
    """Paths from standard input; what has come is answered without waiting for more."""
    from glocal.bulk.addresses import source_of

    return (
        part for paths in _as_they_come(sys.stdin.buffer) for part in recognizer.batches(map(source_of, paths))
    ), None


def _as_they_come(lines: Iterable[bytes]) -> Iterator[list[str]]:
    """The lines that are there, at most a batch; empty ones do not count."""
    from queue import Queue
    from threading import Thread

    from glocal.recognizer.batches import BATCH

    queue: Queue[str | None] = Queue(BATCH)

    def read() -> None:
        for line in lines:
            queue.put(os.fsdecode(line.rstrip(b"\r\n")))
        queue.put(None)

    Thread(target=read, daemon=True).start()
    some: list[str | None] = []
    while None not in some:
        some = [queue.get()]
        while len(some) < BATCH and not queue.empty():
            some.append(queue.get())
        yield list(filter(None, some))


def _explain(recognizer: Recognizer, numbers: Iterator[int], folder: Path, part: Answered) -> None:
    from glocal.recognizer.explanation import explain, write_explanation
    from glocal.recognizer.prediction import Prediction

    rows = count()
    with or_not_written(folder, ROOM):
        for answer, number in zip(part.answers, numbers, strict=False):
            if isinstance(answer, Prediction):
                write_explanation(folder, number, answer, explain(recognizer, part.batch, next(rows), answer))
