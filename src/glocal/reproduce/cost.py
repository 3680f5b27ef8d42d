"""How long runs will take, before anything is computed: multiplications of the backbone over the speed of the machine.

An estimate to plan by.  Speeds are round numbers: a current GPU in float32 with TF32 products, or two CPU cores.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from glocal.backbones import build_backbone
from glocal.data.registry import open_dataset
from glocal.engine.checkpoint import LAST, find_checkpoint, read_checkpoint
from glocal.engine.recipe import Recipe
from glocal.reproduce.runs import DONE, Run, folder_of
from glocal_runtime.errors import DataError

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
    """Of these runs and all they start from, each once, in the order they are made."""
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
