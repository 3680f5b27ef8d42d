"""Make sure that a run exists: what is there is reused, what was interrupted goes on, what is missing is made.

The folder of a run is named by a hash of its resolved recipe, of the pictures it learns from and of the run it starts
from, so the name says whether it is the run that is wanted.  Nothing else is remembered.  Several processes may work in
one folder: a run has a lock, and whoever finds it taken goes on with another one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch.utils.flop_counter import FlopCounterMode

from glocal import __version__
from glocal.backbones import build_backbone
from glocal.data.registry import open_dataset
from glocal.engine.checkpoint import BEST, LAST, find_checkpoint, read_checkpoint
from glocal.engine.evaluate import Progress
from glocal.engine.recipe import Recipe, load_recipe
from glocal.engine.run_folder import Callback
from glocal.engine.train import STAGES
from glocal_runtime.errors import DataError
from glocal_runtime.files import write_text

DONE = "done.json"  # of a run folder: written last, so what has it is complete
LOCKS = "locks"  # beside the runs
ID = 16  # letters of a hash that are kept


@dataclass(frozen=True)
class Run:
    """A run that is wanted: a recipe, what differs from it, and what it starts from."""

    recipe: str
    overrides: tuple[str, ...] = ()
    init: Run | str | None = None  # a run, or a model by name; None leaves what the recipe says

    def resolved(self, start: str | None = None) -> Recipe:
        """``start``: where the run lies that this one starts from."""
        begin = start or (self.init if isinstance(self.init, str) else None)
        return load_recipe(self.recipe, [*self.overrides, *([f"init={json.dumps(begin)}"] if begin else [])])

    def chain(self) -> list[Run]:
        """This run and all before it, the first one first."""
        return [*(self.init.chain() if isinstance(self.init, Run) else []), self]


@dataclass(frozen=True)
class Settings:
    """Where runs are made and measured, and how."""

    out: Path
    tasks: int = 600  # test tasks
    device: torch.device | None = None  # the CPU
    workers: int = 2
    callback: Callable[[str], Callback | None] = lambda title: None  # of training, by the name of the run
    progress: Progress | None = None  # of testing

    @property
    def runs(self) -> Path:
        return self.out.resolve() / "runs"

    @property
    def testing(self) -> dict[str, Any]:
        """Arguments of ``evaluate_models``."""
        return {"device": self.device or "cpu", "workers": self.workers, "progress": self.progress}


def folder_of(run: Run, home: Path) -> Path:
    """Where the run lies, whether it is there or not."""
    start = folder_of(run.init, home) if isinstance(run.init, Run) else None
    recipe = run.resolved(None if start is None else str(start))
    fields = recipe.model_dump(mode="json") | {"init": _identity(recipe, start)}
    parts = [fields, pictures(recipe.data.dataset, recipe.data.skip_bad), __version__]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return home / f"{recipe.method.name}-{digest[:ID]}"


def ensure_run(run: Run, how: Settings, *, wait: bool = True) -> Path | None:
    """The folder of the finished run; None when another process is at it and ``wait`` is False."""
    start = None
    if isinstance(run.init, Run):
        start = ensure_run(run.init, how, wait=wait)
        if start is None:
            return None
    folder = folder_of(run, how.runs)
    if (folder / DONE).is_file():
        return folder
    locks = how.runs / LOCKS
    locks.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(locks / f"{folder.name}.lock", timeout=-1 if wait else 0):
            if not (folder / DONE).is_file():  # somebody may have been quicker
                _make(run.resolved(None if start is None else str(start)), folder, how, start)
    except Timeout:
        return None
    return folder


def _make(recipe: Recipe, folder: Path, how: Settings, start: Path | None) -> None:
    begun = (folder / LAST).exists()
    if begun and read_checkpoint(folder / LAST)[1]["recipe"]["init"] != recipe.init:
        shutil.rmtree(folder)  # all of it was moved to another place since; half a run cannot follow
        begun = False
    STAGES[recipe.stage](recipe, folder, resume=begun, device=how.device, callback=how.callback(folder.name))
    best = read_checkpoint(folder / BEST)[1]
    about = {
        "recipe": recipe.model_dump(mode="json") | {"init": recipe.init if start is None else start.name},
        "init": _identity(recipe, start),
        "data": {name: best["data"][name] for name in ("dataset", "manifest")},
        "step": best["step"],
        "validation": best["validation"],
        "version": __version__,
        "commit": commit(),
    }
    write_text(folder / DONE, json.dumps(about, indent=1) + "\n")


def about_run(folder: Path) -> dict[str, Any]:
    """Recipe, seed, data and commit of a finished run; no path of this machine is in it."""
    found: dict[str, Any] = json.loads((folder / DONE).read_text("utf-8"))
    return found | {"seed": found["recipe"]["seed"]}


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


def program() -> str:
    """Version and commit in short."""
    full = commit()
    return f"{__version__}, commit {full[:12]}{full[40:]}" if full else __version__


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


# Round numbers, to plan by: a current GPU in float32 with TF32 products, or two CPU cores.
GPU, CPU = 15e12, 50e9  # floating-point operations per second
HEAD_SECONDS = {"paper": 0.01, "cpu": 0.03, "embedded": 0.03}  # of one task on cached maps
PICTURES = {"mini-imagenet": 38_400, "tiered-imagenet": 448_695, "cifar-fs": 38_400}  # base pictures
CHECKED = 10_000  # pictures that one validation of a backbone in training encodes


@dataclass(frozen=True)
class Estimate:
    name: str  # of the folder, or of the recipe where the pictures are not there yet
    recipe: str
    state: str  # done, begun or missing
    hours: float  # of the whole run


def estimates(runs: Iterable[Run], home: Path, scale: str) -> list[Estimate]:
    """How long they take: these runs and all they start from, each once, in the order they are made."""
    every = dict.fromkeys(step for run in runs for step in run.chain())
    return [_estimate(run, home, scale) for run in every]


def _estimate(run: Run, home: Path, scale: str) -> Estimate:
    name, state = "", "missing"
    try:
        folder = folder_of(run, home)
        name = folder.name
        state = "done" if (folder / DONE).is_file() else "begun" if (folder / LAST).is_file() else "missing"
    except DataError:  # the pictures are not here, so no run of them is
        pass
    recipe = run.resolved(start="?" if isinstance(run.init, Run) else None)
    return Estimate(name, run.recipe, state, _hours(run, recipe, scale))


def _hours(run: Run, recipe: Recipe, scale: str) -> float:
    pictures, one = _base_pictures(recipe.data.dataset), _flops_of(run)
    passes, check = 0.0, 1
    if recipe.stage == "pretrain":
        epochs = recipe.pretrain.epochs
        passes = epochs * pictures * (4 if recipe.augment.rotate == "four" else 1) * 3  # forward and backward
        check = epochs * pictures // recipe.pretrain.batch_size // recipe.validation.every
    elif recipe.train.backbone == "fine-tuned":
        spec = recipe.train
        each = spec.way * (spec.shot + spec.query) + spec.unknown_way * spec.query
        passes = spec.tasks * each * 3.0
        check = spec.tasks // spec.tasks_per_step // recipe.validation.every
    else:  # cached maps, shared by all runs of a backbone: counted for none of them
        check = 0
    flops = (passes + check * CHECKED) * one
    heads = recipe.train.tasks * HEAD_SECONDS[scale] if recipe.stage == "train" else 0.0
    return (flops / (GPU if scale == "paper" else CPU) + heads) / 3600


def _flops_of(run: Run) -> float:
    """Operations of one picture's way through the backbone."""
    first = run.chain()[0].resolved()
    if first.backbone is not None:
        return _flops(first.backbone.name, json.dumps(first.backbone.settings))
    assert first.init is not None  # the recipe was checked
    record = read_checkpoint(find_checkpoint(first.init))[1]["backbone"]
    return _flops(record["name"], json.dumps(record["settings"]))


@cache
def _flops(name: str, settings: str) -> float:
    with torch.device("meta"):  # shapes alone are computed
        encoder = build_backbone(name, **json.loads(settings)).eval()
        side = encoder.preprocess.size
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            encoder(torch.empty(1, 3, side, side))
    return float(counter.get_total_flops())


@cache
def _base_pictures(dataset: str) -> int:
    return PICTURES[dataset] if dataset in PICTURES else len(open_dataset(dataset, "train"))
