"""What runs will take before they are made: hours, memory of the GPU and space for feature banks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from glocal.backbones import build_backbone
from glocal.data.features import MAPS_UP_TO
from glocal.data.registry import open_dataset
from glocal.engine.checkpoint import LAST, find_checkpoint, read_checkpoint
from glocal.engine.recipe import Recipe
from glocal.methods import Method, build_method
from glocal.reproduce.runs import DONE, Run, folder_of
from glocal_runtime.errors import DataError

# Round numbers, to plan by: a current GPU in float32 with TF32 products, or two CPU cores.
GPU, CPU = 15e12, 50e9  # floating-point operations per second
HEAD_SECONDS = {"paper": 0.01, "full": 0.15, "cpu": 0.03, "embedded": 0.03}  # of one task on cached maps
PICTURES = {"mini-imagenet": 38_400, "tiered-imagenet": 448_695, "cifar-fs": 38_400}  # base pictures
CHECKED = 10_000  # pictures that one validation of a backbone in training, or a test, encodes


@dataclass(frozen=True)
class Estimate:
    name: str  # of the folder, or of the recipe where the pictures are not there yet
    recipe: str
    state: str  # done, begun or missing
    hours: float  # of the whole run and of its test
    memory: float  # GiB that one step keeps for its backward pass, with weights, gradients and momentum
    disk: float  # GB of feature banks that no run before it in the list has


def estimates(runs: Iterable[Run], home: Path, scale: str) -> list[Estimate]:
    """Of these runs and all they start from, each once, in the order they are made."""
    every = dict.fromkeys(step for run in runs for step in run.chain())
    banks: set[Any] = set()
    return [_estimate(run, home, scale, banks) for run in every]


def _estimate(run: Run, home: Path, scale: str, banks: set[Any]) -> Estimate:
    name, state = "", "missing"
    try:
        folder = folder_of(run, home)
        name = folder.name
        state = "done" if (folder / DONE).is_file() else "begun" if (folder / LAST).is_file() else "missing"
    except DataError:  # the pictures are not here, so no run of them is
        pass
    recipe = run.resolved(start="?" if isinstance(run.init, Run) else None)
    one = _backbone_of(run)
    method = build_method(recipe.method.name, one.channels, recipe.method.settings)
    disk, encoded = 0.0, 0
    for key, size, pictures in _banks(run, recipe, one, method):
        if key not in banks:
            banks.add(key)
            disk, encoded = disk + size, encoded + pictures
    hours = _hours(recipe, one, scale) + encoded * one.flops / _speed(scale) / 3600
    return Estimate(name, run.recipe, state, hours, _memory(recipe, one, method), disk / 1e9)


@dataclass(frozen=True)
class Cost:
    """Of one picture on its way through a backbone."""

    side: int  # of the picture
    flops: float
    kept: int  # bytes that the backward pass needs
    channels: int
    pixels: int  # of the last map
    parameters: int


def _hours(recipe: Recipe, one: Cost, scale: str) -> float:
    pictures = _base_pictures(recipe.data.dataset)
    passes, check = 0.0, 1
    if recipe.stage == "pretrain":
        epochs = recipe.pretrain.epochs
        passes = epochs * pictures * recipe.augment.build().copies * 3.0  # forward and backward
        passes *= _size_share(recipe, one)
        check = 1 + epochs * pictures // recipe.pretrain.batch_size // recipe.validation.every
    elif recipe.train.backbone == "fine-tuned":
        passes = recipe.train.tasks * _task_pictures(recipe) * 3.0
        check = 1 + recipe.train.tasks // recipe.train.tasks_per_step // recipe.validation.every
    flops = (passes + check * CHECKED) * one.flops
    heads = recipe.train.tasks * HEAD_SECONDS[scale] if recipe.stage == "train" else 0.0
    return (flops / _speed(scale) + heads) / 3600


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
        mirrored = recipe.train.unknown_way * recipe.train.shot * method.needs_mirror
        at_once = (_task_pictures(recipe) + mirrored) * recipe.train.tasks_per_step
    kept = one.kept * (0.5 if recipe.speed.precision == "bfloat16" else 1.0)
    return (at_once * kept + 3 * 4 * one.parameters) / 2**30


def _task_pictures(recipe: Recipe) -> int:
    spec = recipe.train
    support = spec.way + (spec.unknown_way if spec.unknown_support else 0)
    return support * spec.shot + (spec.way + spec.unknown_way) * spec.query


def _banks(run: Run, recipe: Recipe, one: Cost, method: Method) -> Iterable[tuple[Any, float, int]]:
    """Banks that a stage reads: what tells it from others, its bytes, and the pictures it encodes."""
    if recipe.stage != "train":
        return
    share = {"all": 1.0, "pretrained": 1 - recipe.data.holdout, "held-out": recipe.data.holdout}[recipe.data.part]
    pictures = round(_base_pictures(recipe.data.dataset) * share)
    frozen, views = recipe.train.backbone == "frozen", recipe.train.views
    mean, whole = 4.0 * one.channels, 4.0 * one.channels * one.pixels
    large = pictures * views * whole > MAPS_UP_TO
    start = (run.init if isinstance(run.init, Run) else recipe.init, recipe.data.dataset, recipe.data.part)
    if frozen:
        pooled = large and method.pooled
        size = pictures * views * (mean if pooled else whole)
        yield (*start, views, pooled), size, pictures * views
    if method.needs_base and (large or not frozen):
        yield (*start, "base"), pictures * mean, pictures


def _speed(scale: str) -> float:
    return GPU if scale == "paper" else CPU


def _backbone_of(run: Run) -> Cost:
    first = run.chain()[0].resolved()
    if first.backbone is not None:
        return _cost(first.backbone.name, json.dumps(first.backbone.settings))
    assert first.init is not None  # the recipe was checked
    record = read_checkpoint(find_checkpoint(first.init))[1]["backbone"]
    return _cost(record["name"], json.dumps(record["settings"]))


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
def _base_pictures(dataset: str) -> int:
    return PICTURES[dataset] if dataset in PICTURES else len(open_dataset(dataset, "train"))
