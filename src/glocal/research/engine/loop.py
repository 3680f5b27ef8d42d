"""The training loop that every stage shares: step, log, validate, save, resume.

Step i is a pure function of (weights, momentum, seed, i): data, augmentation and dropout are seeded anew at every step.
A run that was killed and resumed therefore ends with bit-identical weights.
"""

from __future__ import annotations

import json
import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from glocal.common.errors import DataError, GlocalError, RecipeError
from glocal.common.files import write_text
from glocal.research.backbones.resnet12 import restart_ramps, shorten_ramps
from glocal.research.data import open_dataset
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.episodes import EpisodeSampler
from glocal.research.data.splits import check_apart
from glocal.research.engine.checkpoint import BEST, LAST, TrainedModel, load_strictly, save_model, write_checkpoint
from glocal.research.engine.distributed import StepLosses, world
from glocal.research.engine.evaluate import computing_with, evaluate_tasks
from glocal.research.engine.features import FeatureBank, Pooled, is_large
from glocal.research.engine.recipe import Recipe
from glocal.research.engine.run_folder import (
    METRICS,
    RECIPE,
    Callback,
    Callbacks,
    Log,
    alone_in,
    resume_command,
    saved_state,
)

SAVE_SECONDS = 60.0  # at most this much work is done again after a kill
LOG_EVERY = 10  # steps between two lines of metrics.jsonl


class TrainingStopped(GlocalError):
    """Training ended before its last step; the message says how to go on."""


class Interrupted(TrainingStopped):
    """By a signal, after the state was saved."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.exit_code = 128 + number  # as shells have it: 130 for Ctrl-C


class Stage(Protocol):
    """What a stage brings to the loop.  ``losses`` seeds torch itself, by step or task, for dropout."""

    data: ClassDataset  # what it learns from
    model: TrainedModel
    modules: Mapping[str, nn.Module]  # what learns; "backbone" may have a learning rate of its own
    steps: int
    parts: int  # of a step, one after the other: each is freed before the next, and their gradients are added up

    def losses(self, step: int, part: int = 0) -> dict[str, Tensor]:
        """Named, weighted terms of one part of a step; the loop adds up all of them."""
        ...


class Validator:
    """Few-shot open-set tasks from classes that training never sees; the same tasks every time."""

    def __init__(self, recipe: Recipe, device: torch.device):
        self.recipe, self.device = recipe, device
        self.data = open_dataset(recipe.data.dataset, "val", skip_bad=recipe.data.skip_bad)
        sampler = EpisodeSampler(self.data, recipe.validation.spec, seed=recipe.seed)
        self.tasks = sampler.take(recipe.validation.tasks)
        self._frozen: FeatureBank | None = None

    def __call__(self, model: TrainedModel) -> dict[str, float]:
        model.eval()
        bank = self._frozen
        if bank is None:
            wanted, backbone = self.tasks.images(), model.backbone
            options: dict[str, Any] = {"wanted": wanted, "device": self.device, "workers": self.recipe.data.workers}
            means = model.method.pooled and is_large(backbone, len(wanted), self.device)
            encoder = Pooled(backbone) if means else backbone
            if backbone.trainable:
                bank = FeatureBank.in_memory(encoder, self.data, **options)
            else:
                bank = self._frozen = FeatureBank.build(encoder, self.data, **options)
        evaluation = evaluate_tasks(model.method, self.tasks, bank, device=self.device)
        return {name: interval.mean for name, interval in evaluation.summary().items()}


def run_stage(
    build: Callable[[Recipe, torch.device], Stage],
    recipe: Recipe,
    folder: Path,
    *,
    resume: bool = False,
    device: torch.device | None = None,
    callback: Callback | None = None,
) -> TrainedModel:
    """Train in ``folder`` until the last step; returns the model of the last step, BEST holds the chosen one.

    A kill between writing BEST and LAST does no harm: the steps since LAST are taken again and write BEST again.
    """
    saved_state(recipe, folder, resume)  # a folder that is refused is left as it is
    with alone_in(folder), computing_with(recipe.speed.threads):
        return _run_stage(build, recipe, folder, resume, device or torch.device("cpu"), callback or Callbacks())


def _run_stage(
    build: Callable[[Recipe, torch.device], Stage],
    recipe: Recipe,
    folder: Path,
    resume: bool,
    device: torch.device,
    callback: Callback,
) -> TrainedModel:
    us = world()
    saved = saved_state(recipe, folder, resume)
    us.largest(0)  # nobody writes into the folder before everybody has looked at it
    stage = build(recipe, device)
    tasks = recipe.train.tasks_per_step // us.size if recipe.stage == "train" else 1
    passes = tasks * stage.parts  # of the backbone of one process, per step
    ramp = recipe.train.dropblock_ramp if recipe.stage == "train" else None
    if ramp is None or not stage.steps:
        shorten_ramps(stage.model.backbone, stage.steps // 3, passes=passes)
    else:
        restart_ramps(stage.model.backbone, ramp, passes=passes)
    validate = Validator(recipe, device)
    warn_of_shared_pictures(stage.data, validate.data)
    optimizer, names = _optimizer(stage, recipe)
    start, best = 0, -math.inf
    average = WeightAverage(stage.modules, recipe.optimizer.average)
    if saved is not None:
        start, best = _restore(stage, optimizer, names, *saved, folder)
        average.load(saved[0])

    def save(step: int) -> None:
        momentum = {f"momentum.{names[p]}": s["momentum_buffer"] for p, s in optimizer.state.items()}
        record = stage.model.record | {"step": step, "best": None if math.isinf(best) else best, "processes": us.size}
        write_checkpoint(folder / LAST, _tensors(stage) | momentum | average.stored(), record)

    if us.first:
        if saved is None:
            save(0)  # before all else: by it a folder is known as that of a run
        write_text(folder / RECIPE, json.dumps(recipe.model_dump(mode="json"), indent=1))
    log = Log(folder / METRICS, keep_until=start) if us.first else None

    def check(done: int) -> None:
        nonlocal best
        with average.in_place():
            us.same_buffers(list(stage.modules.values()))
            metrics = validate(stage.model)
            if better := metrics[recipe.validation.choose] > best:
                best = metrics[recipe.validation.choose]
            if log and better:
                record = stage.model.record | {"step": done, "validation": metrics}
                save_model(folder / BEST, replace(stage.model, record=record))
        if log:
            log.write({"step": done, **{f"val_{name}": value for name, value in metrics.items()}})
        callback.validated(done, metrics, better)

    if not stage.steps:  # nothing to learn: the method stands on the backbone as it is
        check(0)
        return stage.model
    if recipe.speed.compile and "backbone" in stage.modules:
        stage.model.backbone.compile(dynamic=False)  # in place: weights keep their names; batches keep their shape
    losses = us.averaging(StepLosses(stage))
    saved_at = time.monotonic()
    with _interruptible() as received:
        for step in range(start, stage.steps):
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * recipe.optimizer.factor(step / stage.steps)
            terms = us.mean(_step(losses, recipe, optimizer, step, folder, parts=stage.parts))
            average.update(step)
            done, number = step + 1, us.largest(received())
            callback.step(done, stage.steps, terms)
            if log and done % LOG_EVERY == 0:
                log.write({"step": done, **terms})
            if done % recipe.validation.every == 0 or done == stage.steps:
                check(done)
            if us.first and (done == stage.steps or number or time.monotonic() - saved_at > SAVE_SECONDS):
                save(done)
                saved_at = time.monotonic()
            if number and done < stage.steps:
                again = resume_command(recipe, folder)
                raise Interrupted(
                    f"stopped after step {done} of {stage.steps} and saved; continue with: {again}", number
                )
    return stage.model


def warn_of_shared_pictures(train: ClassDataset, val: ClassDataset) -> None:
    """Classes in both splits are refused; single pictures in both happen in published data and are said aloud."""
    shared = check_apart(train, val)
    if shared and world().first:
        warnings.warn(
            f"{len(shared)} pictures are in both {train.name} and {val.name}, for example {' and '.join(shared[0])}; "
            "validation is a little too easy there",
            stacklevel=3,
        )


def step_seed(seed: int, step: int, salt: int = 0) -> int:
    """One number per (seed, step, purpose), far from its neighbours."""
    return int(np.random.SeedSequence((seed, step, salt)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _step(
    losses: nn.Module, recipe: Recipe, optimizer: torch.optim.Optimizer, step: int, folder: Path, *, parts: int = 1
) -> dict[str, float]:
    optimizer.zero_grad(set_to_none=True)
    values: dict[str, float] = {}
    for part in range(parts):
        # Ranks exchange gradients once, with the last part.
        with getattr(losses, "no_sync", nullcontext)() if part + 1 < parts else nullcontext():
            terms = losses.train()(step, part)
            total = torch.stack(list(terms.values())).sum()
            if not torch.isfinite(total):
                listed = ", ".join(f"{name} = {value.item():g}" for name, value in terms.items())
                raise _not_finite(f"the loss ({listed})", recipe, step, folder)
            if not total.requires_grad:
                raise RecipeError(
                    f"nothing to train: the loss of method {recipe.method.name} has no gradient; "
                    "set train.tasks = 0 to put the method on the backbone as it is",
                    code="nothing-to-train",
                )
            total.backward()  # type: ignore[no-untyped-call]
        values = {name: values.get(name, 0.0) + value.item() for name, value in terms.items()}
    learning = [p for group in optimizer.param_groups for p in group["params"]]
    norm = nn.utils.clip_grad_norm_(learning, recipe.optimizer.clip or math.inf)
    if not torch.isfinite(norm):  # one step with it would spoil the weights for good
        raise _not_finite(f"the gradient (norm {norm.item():g})", recipe, step, folder)
    optimizer.step()
    return values


def _not_finite(what: str, recipe: Recipe, step: int, folder: Path) -> TrainingStopped:
    n = recipe.train.tasks_per_step
    tasks = f", task {step * n}" + (f" to {step * n + n - 1}" if n > 1 else "") if recipe.stage == "train" else ""
    return TrainingStopped(
        f"{what} is not finite at step {step}{tasks} of seed {recipe.seed}; {folder / LAST} keeps the last good state. "
        f"To look at it: python -m pdb -m {resume_command(recipe, folder)} comes to the same step again; "
        "to get past it: a new run with a smaller optimizer.lr, or with optimizer.clip"
    )


def _optimizer(stage: Stage, recipe: Recipe) -> tuple[torch.optim.SGD, dict[Tensor, str]]:
    settings = recipe.optimizer
    groups: list[dict[str, Any]] = []
    names: dict[Tensor, str] = {}
    for part, module in stage.modules.items():
        learning = {f"{part}.{name}": p for name, p in module.named_parameters() if p.requires_grad}
        names.update({parameter: name for name, parameter in learning.items()})
        rate = settings.lr_backbone if part == "backbone" and settings.lr_backbone is not None else settings.lr
        if learning:
            groups.append({"params": list(learning.values()), "base_lr": rate})
    if not groups and stage.steps:
        raise RecipeError(
            f"nothing to train: method {recipe.method.name} has no weights of its own and the backbone is frozen. "
            'Set train.backbone = "fine-tuned", or train.tasks = 0 to put the method on the backbone as it is',
            code="nothing-to-train",
        )
    groups = groups or [{"params": [torch.zeros(0, requires_grad=True)], "base_lr": settings.lr}]
    nesterov = settings.momentum > 0
    optimizer = torch.optim.SGD(
        groups, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay, nesterov=nesterov
    )
    return optimizer, names


def _tensors(stage: Stage) -> dict[str, Tensor]:
    """Everything that learns or counts, beyond the model also heads that only training uses."""
    heads = {f"{part}.{k}": v for part, module in stage.modules.items() for k, v in module.state_dict().items()}
    return stage.model.tensors() | heads


def _restore(
    stage: Stage,
    optimizer: torch.optim.SGD,
    names: Mapping[Tensor, str],
    tensors: Mapping[str, Tensor],
    record: Mapping[str, Any],
    folder: Path,
) -> tuple[int, float]:
    if record["data"] != stage.model.record["data"]:
        raise DataError(
            f"the run in {folder} was trained on other pictures of {record['data']['dataset']} (manifest "
            f"{record['data']['manifest'][:12]}) than are there now; put them back, or start a new run",
            code="other-pictures",
        )
    modules = {"backbone": stage.model.backbone, "method": stage.model.method, **stage.modules}
    for part, module in modules.items():
        if (
            part == "backbone"
            and "packaged" in record["backbone"]
            and not any(n.startswith("backbone.") for n in tensors)
        ):
            continue  # still that of its package, and not stored
        state = {name.removeprefix(f"{part}."): t for name, t in tensors.items() if name.startswith(f"{part}.")}
        load_strictly(module, state, f"{part} of {folder / LAST}")
    for parameter, name in names.items():
        if f"momentum.{name}" in tensors:
            # On the device and in the memory layout of its weight, as the optimizer itself makes it.
            momentum = torch.empty_like(parameter).detach().copy_(tensors[f"momentum.{name}"])
            optimizer.state[parameter]["momentum_buffer"] = momentum
    return record["step"], -math.inf if record["best"] is None else record["best"]


@contextmanager
def _interruptible() -> Iterator[Callable[[], int]]:
    """Ctrl-C and SIGTERM end the run after the step in progress; a second one ends it at once.

    Yields a function that gives the number of the signal received, 0 for none.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0  # only the main thread may handle signals
        return

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: received[0] if received else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class WeightAverage:
    """average <- decay * average + (1 - decay) * weights after each step; a smaller decay during the first steps.

    Counters and other integers are copied.  A decay of 0 follows the weights exactly.
    """

    def __init__(self, modules: Mapping[str, nn.Module], decay: float):
        self.decay = decay
        self._live = {f"{part}.{name}": t for part, m in modules.items() for name, t in m.state_dict().items()}
        self.tensors = {name: t.clone() for name, t in self._live.items()} if decay else {}

    def update(self, steps_before: int) -> None:
        decay = min(self.decay, (1 + steps_before) / (10 + steps_before))
        for name, average in self.tensors.items():
            if average.is_floating_point():
                average.lerp_(self._live[name], 1 - decay)
            else:
                average.copy_(self._live[name])

    def stored(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of it, by names that are its own."""
        return {f"average.{name}": average for name, average in self.tensors.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, average in self.stored().items():
            average.copy_(tensors[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the modules have the averaged weights."""
        kept = {name: self._live[name].clone() for name in self.tensors}
        with torch.no_grad():
            for name, average in self.tensors.items():
                self._live[name].copy_(average)
            try:
                yield
            finally:
                for name, tensor in kept.items():
                    self._live[name].copy_(tensor)
