"""What runs will take before they are made: hours, memory of the GPU and space for feature banks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from glocal.common.errors import DataError
from glocal.research.backbones import build_backbone
from glocal.research.data.episodes import EpisodeSpec
from glocal.research.data.features import MAPS_UP_TO
from glocal.research.data.registry import open_dataset
from glocal.research.data.splits import CATALOGUE
from glocal.research.engine.checkpoint import LAST, find_checkpoint, read_checkpoint
from glocal.research.engine.recipe import Recipe
from glocal.research.methods import Method, build_method
from glocal.research.reproduce.runs import DONE, Run, folder_of
from glocal.research.reproduce.space import Bank, Banks, drawn, touched

# Round numbers, to plan by: a current GPU in float32 with TF32 products, or two CPU cores.
GPU, CPU = 15e12, 50e9  # floating-point operations per second
HEAD_SECONDS = {"paper": 0.01, "full": 0.15, "wide": 0.1, "cpu": 0.03, "embedded": 0.03}  # of one task on cached maps


@dataclass(frozen=True)
class Estimate:
    name: str  # of the folder; empty where the pictures, which are part of it, are not there yet
    method: str  # with shot, backbone and what the run sets of it
    recipe: str
    state: str  # done, begun or missing
    hours: float  # of the whole run and of its test
    memory: float  # GiB that one step keeps for its backward pass, with weights, gradients and momentum
    held: float  # GB of the main memory, in every process: pictures to learn from, and what validation makes of its own
    disk: float  # GB of feature banks that no run before it in the list has


def estimates(runs: Sequence[Run], home: Path, scale: str, tasks: int) -> list[Estimate]:
    """Of these runs, tested by so many tasks, and of all they start from; each once, in the order they are made."""
    every, banks = dict.fromkeys(step for run in runs for step in run.chain()), Banks()
    return [_estimate(run, home, scale, tasks if run in runs else 0, banks) for run in every]


def _estimate(run: Run, home: Path, scale: str, tasks: int, banks: Banks) -> Estimate:
    name, state = "", "missing"
    try:
        folder = folder_of(run, home)
        name = folder.name
        state = "done" if (folder / DONE).is_file() else "begun" if (folder / LAST).is_file() else "missing"
    except DataError:  # the pictures are not here, so no run of them is
        pass
    recipe = run.resolved()
    one = _cost(*_architecture(run))
    method = build_method(recipe.method.name, one.channels, recipe.method.settings)
    wanted = [*_learned_from(run, recipe, one, method), *_tested_on(run, recipe, one, method, tasks)]
    new = [banks.add(bank) for bank in wanted]
    encoded, disk = sum(each.pictures for each in new), sum(each.bytes for each in new)
    hours = _hours(recipe, one, method, scale, tasks) + encoded * one.flops / _speed(scale) / 3600
    memory, held = _memory(recipe, one, method), _held(recipe, one, method)
    return Estimate(name, _method(run, recipe), run.recipe, state, hours, memory, held / 1e9, disk / 1e9)


def _method(run: Run, recipe: Recipe) -> str:
    """Tells runs of one recipe apart."""
    own = [text.removeprefix("method.") for text in run.overrides if text.startswith(("method.", "seed="))]
    own = [text for text in dict.fromkeys(own) if not text.startswith("name=")]
    shot = f" {recipe.train.shot}-shot" if recipe.stage == "train" else ""
    return ", ".join([f"{recipe.method.name}{shot} on {_architecture(run)[0]}", *own])


@dataclass(frozen=True)
class Cost:
    """Of one picture on its way through a backbone."""

    side: int  # of the picture
    flops: float
    kept: int  # bytes that the backward pass needs
    channels: int
    pixels: int  # of the last map
    parameters: int

    @property
    def mean(self) -> float:
        """Bytes of the mean of a map."""
        return 4.0 * self.channels

    @property
    def whole(self) -> float:
        return self.mean * self.pixels


def _hours(recipe: Recipe, one: Cost, method: Method, scale: str, tests: int) -> float:
    """Without encoding what a frozen backbone and the test need, which are banks."""
    pretraining, learned, check = recipe.stage == "pretrain", recipe.train, recipe.validation
    tasks = 0 if pretraining else learned.tasks
    if pretraining:
        pictures = recipe.pretrain.epochs * _base_pictures(recipe)
        steps = pictures // recipe.pretrain.batch_size
        passes = pictures * recipe.augment.build().copies * 3.0 * _size_share(recipe, one)  # forward and backward
    else:
        steps = tasks // learned.tasks_per_step
        passes = tasks * _task_pictures(recipe, method) * 3.0 if learned.backbone == "fine-tuned" else 0.0
    checks = steps // check.every
    if passes:
        passes += checks * touched(drawn(check.spec, check.tasks), _pictures(recipe.data.dataset, "val"))
    heads = (tasks + checks * check.tasks + tests) * HEAD_SECONDS[scale]
    return (passes * one.flops / _speed(scale) + heads) / 3600


def _size_share(recipe: Recipe, one: Cost) -> float:
    """What pictures that grow cost, as a share of pictures that are whole from the start."""
    share, before = 0.0, 0.0
    for size, end in zip(recipe.pretrain.sizes, recipe.pretrain.size_ends, strict=True):
        share += (end - before) * (size / one.side) ** 2
        before = end
    return share + 1 - before


def _memory(recipe: Recipe, one: Cost, method: Method) -> float:
    """GiB; a frozen backbone keeps nothing."""
    if recipe.stage == "train" and recipe.train.backbone == "frozen":
        return 0.0
    if recipe.stage == "pretrain":
        batch = recipe.pretrain.batch_size * recipe.augment.build().copies
        at_once = min(batch, recipe.pretrain.micro_batch or batch)
    else:
        at_once = _task_pictures(recipe, method) * recipe.train.tasks_per_step
    kept = one.kept * (0.5 if recipe.speed.precision == "bfloat16" else 1.0)
    return (at_once * kept + 3 * 4 * one.parameters) / 2**30


def _held(recipe: Recipe, one: Cost, method: Method) -> float:
    """Bytes; maps of a frozen backbone are banks on the disk, and prepared pictures may stay there too."""
    if recipe.stage == "train" and recipe.train.backbone == "frozen":
        return 0.0
    checked = touched(drawn(recipe.validation.spec, recipe.validation.tasks), _pictures(recipe.data.dataset, "val"))
    return _base_pictures(recipe) * 3.0 * one.side**2 + checked * _size(one, method, checked)


def _base_pictures(recipe: Recipe) -> int:
    share = {"all": 1.0, "pretrained": 1 - recipe.data.holdout, "held-out": recipe.data.holdout}[recipe.data.part]
    return round(_pictures(recipe.data.dataset, "train") * share)


def _task_pictures(recipe: Recipe, method: Method) -> int:
    spec = recipe.train
    support = spec.way + spec.unknown_way * (spec.unknown_support + method.needs_mirror)
    return support * spec.shot + (spec.way + spec.unknown_way) * spec.query


def _learned_from(run: Run, recipe: Recipe, one: Cost, method: Method) -> Iterable[Bank]:
    """Banks of the base classes, and of the validation classes when the backbone is frozen."""
    if recipe.stage != "train":
        return
    pictures = _base_pictures(recipe)
    frozen, views = recipe.train.backbone == "frozen", recipe.train.views
    start = (_encoder(run.init) if isinstance(run.init, Run) else recipe.init, recipe.data.dataset)
    part = (*start, recipe.data.part)
    if frozen:
        size = _size(one, method, pictures * views)
        yield Bank((*part, views, size), "all", math.inf, pictures * views, size)
        spec, tasks = recipe.validation.spec, recipe.validation.tasks
        taken, of = drawn(spec, tasks), _pictures(recipe.data.dataset, "val")
        size = _size(one, method, touched(taken, of))
        yield Bank((*start, "val", size), (spec, tasks, recipe.seed), taken, of, size)
    if method.needs_base and (not frozen or pictures * views * one.whole > MAPS_UP_TO):
        yield Bank((*part, "base"), "all", math.inf, pictures, one.mean)


def _tested_on(run: Run, recipe: Recipe, one: Cost, method: Method, tasks: int) -> Iterable[Bank]:
    """Maps of a fine-tuned model are dropped after its test."""
    if tasks:
        spec = EpisodeSpec(shot=recipe.train.shot)
        taken, of = drawn(spec, tasks), _pictures(recipe.data.dataset, "test")
        size, tuned = _size(one, method, touched(taken, of)), recipe.train.backbone == "fine-tuned"
        yield Bank((_encoder(run), recipe.data.dataset, "test", size), spec, taken, of, size, stays=not tuned)


def _encoder(run: Run) -> Run | str | None:
    """The run that made the backbone of this one, or the model that it came from."""
    recipe = run.resolved()
    if recipe.stage == "pretrain" or (recipe.train.backbone == "fine-tuned" and recipe.train.tasks):
        return run
    return _encoder(run.init) if isinstance(run.init, Run) else recipe.init


def _size(one: Cost, method: Method, pictures: float) -> float:
    """Bytes of a picture in a bank of so many."""
    return one.mean if method.pooled and pictures * one.whole > MAPS_UP_TO else one.whole


def _speed(scale: str) -> float:
    return GPU if scale == "paper" else CPU


def _architecture(run: Run) -> tuple[str, str]:
    """Name and settings of the backbone that all of its stages have."""
    first = run.chain()[0].resolved()
    if first.backbone is not None:
        return first.backbone.name, json.dumps(first.backbone.settings)
    assert first.init is not None  # the recipe was checked
    record = read_checkpoint(find_checkpoint(first.init))[1]["backbone"]
    return record["name"], json.dumps(record["settings"])


@cache
def _cost(name: str, settings: str) -> Cost:
    """Shapes alone are computed, for two pictures: batch norm refuses one."""
    with torch.device("meta"):
        backbone = build_backbone(name, **json.loads(settings))
        side = backbone.preprocess.size
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            maps = backbone.eval()(torch.empty(1, 3, side, side))
        own = {id(parameter) for parameter in backbone.parameters()}
        kept: dict[int, Tensor] = {}  # by storage, which several steps may keep

        def keep(tensor: Tensor) -> Tensor:
            if id(tensor) not in own:
                kept[tensor.untyped_storage()._cdata] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            backbone.train()(torch.empty(2, 3, side, side))
    size = sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) // 2
    parameters = sum(parameter.numel() for parameter in backbone.parameters())
    return Cost(side, float(counter.get_total_flops()), size, backbone.channels, maps[0, 0].numel(), parameters)


@cache
def _pictures(dataset: str, split: str) -> int:
    known = CATALOGUE.get(dataset)
    return len(open_dataset(dataset, split)) if known is None else known.parts[split].images
