"""The folder of a run: its files, whether a run may start or go on there, and callbacks for its progress."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout
from torch import Tensor

from glocal.common.errors import GlocalError, RecipeError
from glocal.common.files import make_folder, write_text
from glocal.research.engine.checkpoint import BEST, LAST, read_checkpoint
from glocal.research.engine.distributed import world
from glocal.research.engine.recipe import Recipe, parse_recipe

RECIPE = "recipe.json"  # the resolved recipe
METRICS = "metrics.jsonl"  # losses and validation over the steps
LOCK = ".lock"  # held while a run is at work
WORKERS = "data.workers"  # of a recipe; how many of them changes no number, so a run may go on with others

SavedState = tuple[dict[str, Tensor], dict[str, Any]]  # tensors and record of LAST


def saved_state(recipe: Recipe, folder: Path, resume: bool) -> SavedState | None:
    """What to resume from; asked before anything is computed, so that a wrong folder is refused at once."""
    if not resume:
        if (folder / LAST).exists() or (folder / BEST).exists():
            raise RecipeError(
                f"{folder} already holds a run; continue it with --resume, or choose another folder", code="run-exists"
            )
        for name in (RECIPE, METRICS):  # what every run begins with is LAST
            if (folder / name).exists():
                raise RecipeError(
                    f"{folder} holds a {name} that is not of a run; choose another folder", code="not-a-run"
                )
        return None
    if not (folder / LAST).exists():
        raise RecipeError(
            f"there is nothing to resume in {folder}: it has no {LAST}; start without --resume", code="no-run"
        )
    tensors, record = read_checkpoint(folder / LAST)
    # Parsed again: a setting that came later than the run had its default value all along.
    before, now = (_flat(r.model_dump(mode="json")) for r in (parse_recipe(record["recipe"]), recipe))
    different = [key for key in sorted(before | now) if before.get(key) != now.get(key) and key != WORKERS]
    if different:
        listed = ", ".join(f"{key} ({before.get(key)!r} there, {now.get(key)!r} now)" for key in different)
        raise RecipeError(
            f"the run in {folder} was started with another recipe, different in {listed}; its own is {folder / RECIPE}",
            code="other-recipe",
        )
    # Tasks are dealt out, and how many processes share them changes no number; a batch norm sees its own share alone.
    size = world().size
    processes = record.get("processes", size)  # a run from before it was recorded may go on
    if recipe.stage == "pretrain" and processes != size:
        raise RecipeError(
            f"the run in {folder} was started by {processes} processes, and with {size} its numbers would be others; "
            f"go on with {processes}, or start anew in another folder",
            code="other-processes",
        )
    return tensors, record


def _flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"optimizer": {"lr": 1}} -> {"optimizer.lr": 1}."""
    flat: dict[str, Any] = {}
    for key, value in fields.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Two runs in one folder would leave a mixture of both; the lock of a process that was killed holds nobody up."""
    if not world().first:  # of several ranks one writes
        yield
        return
    make_folder(folder)
    try:
        with FileLock(folder / LOCK, timeout=0):
            try:
                yield
            finally:
                if [path.name for path in folder.iterdir()] == [LOCK]:  # refused before it began: no trace of it
                    (folder / LOCK).unlink()
                    folder.rmdir()
    except Timeout:
        raise RecipeError(
            f"another process is training in {folder}; wait until it is done, or choose another folder", code="busy"
        ) from None


def resume_command(recipe: Recipe, folder: Path) -> str:
    return f"glocal {recipe.stage} {shlex.quote(str(folder / RECIPE))} --out {shlex.quote(str(folder))} --resume"


class Log:
    """One JSON object per line; lines of steps that will be repeated after a resume are dropped."""

    def __init__(self, path: Path, *, keep_until: int):
        kept: list[str] = []
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            kept = [f"{line}\n" for line in lines if _step_of(line) <= keep_until]
        write_text(path, "".join(kept))
        self._path = path

    def write(self, fields: Mapping[str, Any]) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except ValueError:  # a kill can leave half a line, always of a step after the last saved one
        return math.inf


FOLDER = "tensorboard"  # below the folder of the run
WRITE_EVERY = 10  # steps between two points of a loss curve


class Callback(Protocol):
    def step(self, step: int, steps: int, terms: Mapping[str, float]) -> None: ...

    def validated(self, step: int, metrics: Mapping[str, float], best: bool) -> None: ...


class Callbacks:
    """Tells each of them, in order."""

    def __init__(self, *each: Callback):
        self._each = each

    def step(self, step: int, steps: int, terms: Mapping[str, float]) -> None:
        for callback in self._each:
            callback.step(step, steps, terms)

    def validated(self, step: int, metrics: Mapping[str, float], best: bool) -> None:
        for callback in self._each:
            callback.validated(step, metrics, best)


class TensorBoard:
    """Writes loss terms and validation metrics for TensorBoard; of several processes, only the first one writes.

    Nothing is touched before the first step, because the run may still be refused.  After a resume the points of steps
    that are taken again give way to the new ones.
    """

    def __init__(self, run: Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as missing:
            raise GlocalError(
                "--tensorboard needs the package tensorboard, which is not installed: pip install 'glocal[tensorboard]'"
            ) from missing
        self._open, self._folder = SummaryWriter, run / FOLDER
        self._writer: Any = None

    def step(self, step: int, steps: int, terms: Mapping[str, float]) -> None:
        if self._writer is None and world().first:
            self._writer = self._open(str(self._folder), purge_step=step)
        if step % WRITE_EVERY == 0 or step == steps:
            self._write("loss", terms, step)

    def validated(self, step: int, metrics: Mapping[str, float], best: bool) -> None:
        self._write("validation", metrics, step)

    def _write(self, group: str, values: Mapping[str, float], step: int) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(f"{group}/{name}", value, step)

    def close(self) -> None:
        """Write what is still in memory."""
        if self._writer is not None:
            self._writer.close()
