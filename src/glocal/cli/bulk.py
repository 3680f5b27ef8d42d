"""Commands for many photos: embed, similar, and what `glocal predict --out` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from glocal.cli.console import bars, check_there, rate_meter, show
from glocal.cli.options import Address, Device, Engine, EngineName, Json, Processes, Resume
from glocal.cli.printing import tell
from glocal.common.words import counted, printable


def embed(
    model: Annotated[str, typer.Argument(help="A .glocal file, or a model as in `glocal enroll`.")],
    images: Annotated[list[str], typer.Argument(help="Photos, as in `glocal predict`.")],
    out: Annotated[str, typer.Option("--out", "-o", help="A folder (or s3://...) of Parquet files in parts.")],
    resume: Resume = False,
    engine: Engine = EngineName.local,
    address: Address = None,
    workers: Processes = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Keep the vectors of photos: `predict --vectors` and `similar` answer from them."""
    check_there(*images)
    from glocal.bulk.addresses import check_clients

    check_clients(images)
    from glocal.recognizer.recognizer import find_model

    maker = find_model(model, device=device).encoder.sha256
    run_job(
        "vectors", model, maker, images, device,
        out=out, resume=resume, engine=engine, address=address, workers=workers, json=json,
    )  # fmt: skip


def similar(
    vectors: Annotated[str, typer.Argument(help="What `glocal embed` wrote.")],
    photo: Annotated[str, typer.Argument(help="A picture, or its address.")],
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many to list.")] = 10,
    model: Annotated[str | None, typer.Option(help="What made the vectors, if it lies elsewhere now.")] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """List the stored photos that are most like a photo."""
    check_there(vectors, photo)
    from glocal.bulk.addresses import needing_pyarrow

    with needing_pyarrow():
        from glocal.bulk.vectors import Vectors

        nearest = Vectors(vectors).nearest(photo, count, model=model, device=device)
    show(
        [{"uri": uri, "similarity": round(value, 6)} for uri, value in nearest],
        as_json=json,
        otherwise=lambda: "\n".join(f"{value:6.3f}  {printable(uri)}" for uri, value in nearest),
    )


def run_job(
    kind: str,
    model: str,
    maker: str,
    images: list[str],
    device: str,
    *,
    out: str,
    resume: bool,
    engine: EngineName,
    address: str | None,
    workers: int | None,
    json: bool,
) -> None:
    from glocal.bulk.addresses import needing_pyarrow

    with needing_pyarrow():
        from glocal.bulk.job import Job, JobFolder
        from glocal.bulk.store import Store
        from glocal.bulk.workers import work

    more: dict[str, Any] = {}
    if engine is EngineName.ray:
        from glocal.bulk.on_ray import check_ray
        from glocal.bulk.on_ray import work as work_on_ray

        check_ray()
        more["address"] = address
    folder, job = JobFolder(Store(out)), Job(kind, model, maker, tuple(images), device)
    folder.begin(job, resume=resume)
    waiting = folder.waiting()
    before = folder.parts() - len(waiting)
    if before:
        tell(f"{out}: {before} of {folder.parts()} parts are there already")
    with bars() as progress:
        done = _adder(rate_meter(progress, "predict" if kind == "answers" else "embed"), folder.size(waiting))
        run = work_on_ray if engine is EngineName.ray else work
        run(folder, job, workers=workers, done=done, **more)
    finish(folder, out, json)


def answer_vectors(file: Path, vectors: str, out: str, resume: bool, device: str, json: bool) -> None:
    from glocal.bulk.addresses import needing_pyarrow

    with needing_pyarrow():
        from glocal.bulk.job import JobFolder
        from glocal.bulk.store import Store
        from glocal.bulk.vectors import Vectors
    from glocal.recognizer.recognizer import Recognizer

    stored, folder = Vectors(vectors), JobFolder(Store(out))
    recognizer = Recognizer.load(file, device=device)
    with bars() as progress:
        meter = rate_meter(progress, "predict")
        stored.answer(recognizer, folder, str(file), resume=resume, done=_adder(meter, stored.size()))
    finish(folder, out, json)


def finish(folder: Any, out: str, json: bool) -> None:
    """Print the counts; exit code 1 when there are errors, 2 when there is no answer."""
    from glocal.common.errors import DataError

    counts = folder.finish()
    first = folder.first_error() if counts.errors else ""
    if first and not counts.answered:
        raise DataError(first)
    result = {"folder": out, "photos": counts.photos, "answered": counts.answered, "errors": counts.errors}
    show(
        result,
        as_json=json,
        otherwise=lambda: (
            f"{out}: {counts.answered} of {counted(counts.photos, 'picture')} done, in {counted(counts.parts, 'part')}"
        ),
    )
    if first:
        tell(f"{counts.errors} of {counts.photos} pictures cannot be used; the first: {first}")
        raise typer.Exit(1)


def _adder(update: Callable[[int, int | None], None], total: int) -> Callable[[int], None]:
    count = 0

    def add(n: int) -> None:
        nonlocal count
        count += n
        update(count, total)

    return add
