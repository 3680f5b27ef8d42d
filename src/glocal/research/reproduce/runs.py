"""Make sure that a run exists: what is there is reused, what was interrupted goes on, what is missing is made.

The name of a run's folder is a hash of the changes in its recipe, of its pictures and of the run that it starts from.
So the name identifies the run, and nothing else is remembered.  Several processes may work in one folder: each run has
a lock, and a process that finds it taken makes another run.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from glocal import __version__
from glocal.common.errors import GlocalError
from glocal.common.files import write_text
from glocal.research.data import open_dataset
from glocal.research.engine.checkpoint import BEST, LAST, find_checkpoint, read_checkpoint
from glocal.research.engine.distributed import world
from glocal.research.engine.evaluate import Progress
from glocal.research.engine.recipe import Recipe, load_recipe
from glocal.research.engine.run_folder import Callback
from glocal.research.engine.train import STAGES

DONE = "done.json"  # of a run folder: written last, so what has it is complete
LOCKS = "locks"  # beside the runs
ID = 16  # letters of a hash that are kept
RETRIES = 5  # of a run on Ray whose process or machine died


@dataclass(frozen=True)
class Run:
    """A run that is wanted: a recipe, what differs from it, and what it starts from."""

    recipe: str
    overrides: tuple[str, ...] = ()
    init: Run | str | None = None  # a run, or a model by name; None leaves what the recipe says

    def resolved(self, start: Path | str | None = "?") -> Recipe:
        """``start``: where the run lies that this one starts from, if it starts from one."""
        begin = str(start) if isinstance(self.init, Run) else self.init
        return load_recipe(self.recipe, [*self.overrides, *([f"init={json.dumps(begin)}"] if begin else [])])

    def seeded(self, further: int) -> Run:
        """The same from the seed that is so much further than its own, with all it starts from; 0 is the run itself."""
        if not further:
            return self
        init = self.init.seeded(further) if isinstance(self.init, Run) else self.init
        return Run(self.recipe, (*self.overrides, f"seed={_seed(self) + further}"), init)

    def chain(self) -> list[Run]:
        """This run and all before it, the first one first."""
        return [*(self.init.chain() if isinstance(self.init, Run) else []), self]


@cache
def _seed(run: Run) -> int:
    return run.resolved().seed


@dataclass(frozen=True)
class RunSettings:
    """Where runs are made and measured, and how."""

    out: Path
    tasks: int = 600  # test tasks
    device: torch.device | None = None  # the CPU
    workers: int = 2
    callback: Callable[[str], Callback | None] = lambda title: None  # of training, by the name of the run
    progress: Progress | None = None  # of testing
    seeds: int = 1  # trainings of every run
    threads: int | None = None  # that compute test tasks; as many as there are

    @property
    def runs(self) -> Path:
        return self.out.resolve() / "runs"

    @property
    def testing(self) -> dict[str, Any]:
        """Arguments of ``evaluate_models``."""
        where = {"device": self.device or "cpu", "workers": self.workers, "threads": self.threads}
        return where | {"progress": self.progress}


def folder_of(run: Run, home: Path) -> Path:
    """Where the run lies, whether it is there or not."""
    start = folder_of(run.init, home) if isinstance(run.init, Run) else None
    recipe = run.resolved(start)
    # What differs from the defaults: an option that is added to recipes later renames no run.
    fields = recipe.model_dump(mode="json", exclude_defaults=True) | {"init": _identity(recipe, start)}
    fields["data"].pop("workers", None)  # how many of them changes no number
    parts = [fields, pictures(recipe.data.dataset, recipe.data.skip_bad), __version__]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return home / f"{recipe.method.name}-{digest[:ID]}"


def make_runs(runs: Sequence[Run], settings: RunSettings) -> None:
    """Make the runs and all that they start from.  A run that another process is making waits until the end."""
    waiting = list(runs)
    while waiting:
        busy = [run for run in waiting if ensure_run(run, settings, wait=False) is None]
        if len(busy) == len(waiting):
            ensure_run(busy[0], settings)
        waiting = busy


def make_runs_on_ray(runs: Sequence[Run], settings: RunSettings, *, address: str | None) -> None:
    """Make each run as one task of a cluster, which starts when the run it needs is there.

    All machines must see the folder of the reproduction and the data.  Ray repeats a task whose machine died; the run
    then continues from its last checkpoint.  Progress bars stay in this process.
    """
    from glocal.bulk.on_ray import cluster

    quiet = replace(settings, out=settings.out.resolve(), callback=RunSettings.callback, progress=None)
    gpus = 1 if quiet.device is not None and quiet.device.type == "cuda" else 0
    with cluster(address, None) as ray:
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(_make_on_ray)
        started: dict[Any, Any] = {None: None}
        for step in dict.fromkeys(step for run in runs for step in run.chain()):
            started[step] = task.remote(step, quiet, started[step.init if isinstance(step.init, Run) else None])
        try:
            ray.get([each for each in started.values() if each is not None])
        except ray.exceptions.RayTaskError as failed:
            if isinstance(failed.cause, GlocalError):
                raise failed.cause from None
            raise


def _make_on_ray(run: Run, settings: RunSettings, needed: None) -> None:
    """``needed``: the task that Ray waits for."""
    if settings.device is not None and settings.device.type == "cuda":
        settings = replace(settings, device=torch.device("cuda"))  # Ray shows each task its own
    ensure_run(run, settings)


def ensure_run(run: Run, settings: RunSettings, *, wait: bool = True) -> Path | None:
    """The folder of the finished run; None when another process is at it and ``wait`` is False."""
    start = None
    if isinstance(run.init, Run):
        start = ensure_run(run.init, settings, wait=wait)
        if start is None:
            return None
    folder = folder_of(run, settings.runs)
    if _agreed((folder / DONE).is_file()):
        return folder
    lock = FileLock(settings.runs / LOCKS / f"{folder.name}.lock", timeout=-1 if wait else 0)
    # One run over several processes: the first of them holds the lock for all, and says what there is to do.
    if not _agreed(world().first and _taken(lock)):
        return None
    try:
        if not _agreed((folder / DONE).is_file()):  # somebody may have been quicker
            _make(run.resolved(start), folder, settings, start)
    finally:
        lock.release()
    return folder


def _agreed(done: bool) -> bool:
    """What holds in the first of the processes that work on this run."""
    return bool(world().largest(int(done and world().first)))


def _taken(lock: FileLock) -> bool:
    Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire()
    except Timeout:
        return False
    return True


def _make(recipe: Recipe, folder: Path, settings: RunSettings, start: Path | None) -> None:
    begun = _agreed((folder / LAST).exists())
    if _agreed(begun and read_checkpoint(folder / LAST)[1]["recipe"]["init"] != recipe.init):
        if world().first:
            shutil.rmtree(folder)  # all of it was moved to another place since; half a run cannot follow
        begun = _agreed(False)
    STAGES[recipe.stage](recipe, folder, resume=begun, device=settings.device, callback=settings.callback(folder.name))
    if world().first:
        _finish(recipe, folder, settings, start)
    world().largest(0)  # what the first has written is there for all


def _finish(recipe: Recipe, folder: Path, settings: RunSettings, start: Path | None) -> None:
    best = read_checkpoint(folder / BEST)[1]
    about = {
        "recipe": recipe.model_dump(mode="json") | {"init": recipe.init if start is None else start.name},
        "init": _identity(recipe, start),
        "data": {name: best["data"][name] for name in ("dataset", "manifest")},
        "step": best["step"],
        "validation": best["validation"],
        "environment": environment(settings.device, recipe.speed.threads),
    }
    write_text(folder / DONE, json.dumps(about, indent=1) + "\n")


def about_run(folder: Path) -> dict[str, Any]:
    """Recipe, seed, data and environment of a finished run, without paths of this machine."""
    record: dict[str, Any] = json.loads((folder / DONE).read_text("utf-8"))
    return record | {"seed": record["recipe"]["seed"]}


def _identity(recipe: Recipe, start: Path | None) -> str | None:
    """Of what a run starts from: the name of the run before, or the hash of a checkpoint."""
    if start is not None:
        return start.name
    return None if recipe.init is None else _weights(recipe.init)


@cache
def _weights(source: str) -> str:
    digest: str = read_checkpoint(find_checkpoint(source))[1]["sha256"]
    return digest


@cache
def pictures(dataset: str, skip_bad: bool = False) -> list[str]:
    """Hashes of what training and validation see."""
    return [open_dataset(dataset, split, skip_bad=skip_bad).manifest for split in ("train", "val")]


def environment(device: torch.device | str | None = None, threads: int | None = None) -> dict[str, Any]:
    """Without names of machines and paths.  ``threads``: those that a recipe names."""
    where = torch.device(device or "cpu")
    return {
        "glocal": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "threads": threads or torch.get_num_threads(),
        "device": torch.cuda.get_device_name(where) if where.type == "cuda" else where.type,
    }


def in_words(made: Mapping[str, Any]) -> str:
    """An environment as a line of a report."""
    source = f"glocal {made['glocal']}"
    source += f", commit {made['commit'][:12]}{made['commit'][40:]}" if made["commit"] else ""
    threads = f"{made['threads']} thread{'s' if made['threads'] != 1 else ''}"
    return f"{source}, torch {made['torch']}, {threads} on {made['device']}"


@cache
def commit() -> str | None:
    """Of the source that runs, with a + when files in it were changed; None for an installed package."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *words], capture_output=True, text=True, check=True, timeout=20
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", "../") else "")
    except (OSError, subprocess.SubprocessError):
        return None
