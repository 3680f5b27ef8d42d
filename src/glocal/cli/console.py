"""What commands share: options, progress bars, JSON.  Progress goes to stderr, results to stdout."""

from __future__ import annotations

import glob
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from glocal.common.errors import DataError
from glocal.common.files import there_already
from glocal.common.words import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

FIRST = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun starts, one speaks


@cache
def screen() -> Console:
    """Rich comes when something is drawn: a wrong path is answered before it would be there."""
    from rich.console import Console

    return Console(stderr=True, quiet=not FIRST)


def show(result: Any, *, as_json: bool, otherwise: Callable[[], Any]) -> None:
    """Print the result for a program or for a person."""
    if not FIRST:
        return
    if as_json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
        return
    shown = otherwise()
    if isinstance(shown, str):
        typer.echo(printable(shown))  # rich would wrap it, and read [brackets] of a path as markup
    else:
        from rich.console import Console

        Console().print(shown, crop=False)  # a sentence may be longer than a line; a terminal wraps it


def check_there(*given: str | Path | None) -> None:
    """Refuse a path or glob that leads nowhere now, before seconds go into imports and models; addresses pass."""
    for path in (str(each) for each in given if each is not None):
        if "://" not in path and not os.path.lexists(path) and not any(glob.iglob(path, recursive=True)):
            raise DataError(f"{path}: there is no such file or folder; check the path", code="no-file")


def check_free(path: Path | None, force: bool, *, resume: bool | None = None) -> None:
    """Refuse to write over a file, or into a folder that holds something, unless that is asked for.

    ``resume``: for results that can be continued, whether they are to be.
    """
    if path is None or force or resume or not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir())):
        return
    more = "" if resume is None else "continue it with --resume, "
    raise there_already(path, more=more)


def check_ours(record: Path, *beside: str) -> None:
    """Refuse to write over files of these names that no earlier run wrote: ``record`` is what tells.

    For commands that may be given again with the same folder, and then keep what they have.
    """
    there = [path for path in (record, *map(record.with_name, beside)) if os.path.lexists(path)]
    try:
        ours = "version" in json.loads(record.read_text("utf-8"))
    except (OSError, ValueError, TypeError):
        ours = False
    if there and not ours:
        raise DataError(
            f"{there[0]} is there already, and not from an earlier run of this command; choose another folder",
            code="file-exists",
        )


def quoted(text: str) -> str:
    """As a TOML string, for an override whose value must stay text."""
    return json.dumps(text, ensure_ascii=False)


@contextmanager
def bars() -> Iterator[Progress | None]:
    """For what takes a while; nothing where nobody watches, and rich is not even imported there."""
    if not sys.stderr.isatty():
        yield None
        return
    with logged_bars() as progress:
        yield progress


@contextmanager
def logged_bars() -> Iterator[Progress]:
    """The same for what also writes lines, which a log file has."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=screen(), disable=not screen().is_terminal) as progress:
        yield progress


def meter(progress: Progress | None, title: str, unit: str = "") -> Callable[[int, int | None], None]:
    """One more bar, seen from its first report on, as the (done, total) callable that the library takes.

    Without a total it counts; with a ``unit`` it says how many there are per second.
    """
    if progress is None:
        return lambda done, total: None
    task = progress.add_task(title, total=None, note="", visible=False)

    def update(done: int, total: int | None) -> None:
        speed = progress.tasks[task].speed
        note = f"{speed:.1f} {unit}/s" if unit and speed else ""
        progress.update(task, completed=done, total=total, visible=True, note=note)

    return update


rate_meter = partial(meter, unit="pictures")


@contextmanager
def stage_bars() -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar for each stage of an evaluation, as the (stage, done, total) callable that the library takes."""
    with bars() as progress:
        yield stages(progress)


def stages(progress: Progress | None, unit: str = "") -> Callable[[str, int, int | None], None]:
    """The same on bars that are there."""
    meters: dict[str, Callable[[int, int | None], None]] = {}

    def update(stage: str, done: int, total: int | None) -> None:
        if stage not in meters:
            meters[stage] = meter(progress, stage, unit)
        meters[stage](done, total)

    return update


class TrainingBar:
    """Watches a training run: loss terms, validation ACC and AUROC, steps per second, time left."""

    def __init__(self, progress: Progress, title: str):
        self._progress = progress
        self._task: TaskID = progress.add_task(title, total=None, note="")
        self._loss, self._validation = "", ""

    def step(self, step: int, steps: int, terms: Mapping[str, float]) -> None:
        self._loss = "  ".join(f"{name} {value:.3f}" for name, value in terms.items())
        self._progress.update(self._task, completed=step, total=steps, note=self._note())

    def validated(self, step: int, metrics: Mapping[str, float], best: bool) -> None:
        shown = [f"{metrics[name] * 100:.1f}" for name in ("acc", "auroc") if name in metrics]
        self._validation = f"validation ACC/AUROC {'/'.join(shown)}{' (best)' if best else ''}"
        self._progress.update(self._task, note=self._note())
        # A line that stays, because a log file has no bar.
        self._progress.console.print(f"step {step}  {self._note()}", markup=False, highlight=False, soft_wrap=True)

    def _note(self) -> str:
        speed = self._progress.tasks[self._task].speed
        return "  ".join(part for part in (self._loss, f"{speed:.1f}/s" if speed else "", self._validation) if part)
