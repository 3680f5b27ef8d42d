"""Every method goes through the engine: frozen on cached maps and with the backbone fine-tuned, saved and evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from faults import Stop
from glocal.research.backbones import build_backbone
from glocal.research.engine.checkpoint import LAST, load_model, read_checkpoint
from glocal.research.engine.evaluate import evaluate
from glocal.research.engine.pretrain import pretrain
from glocal.research.engine.recipe import load_recipe, parse_recipe
from glocal.research.engine.train import train
from glocal.research.methods import METHODS, build_method
from refusal import refused
from tiny_runs import fields, make_dataset

ONE_CACHE = True
FULL = {"name": "peeler", "variant": "gaussian", "early_channels": 8, "sigma_channels": 4}
CASES: dict[str, dict[str, Any]] = {name: {"name": name} for name in METHODS}
CASES |= {"peeler": {"name": "peeler", "adapter": True}, "peeler, full": FULL}
CASES["dnpg"]["epochs"] = 2
CASES["mahalanobis"]["shrinkage"] = 0.1  # the data set has fewer images than a covariance needs


@pytest.fixture(scope="module")
def dataset(home: Path) -> Path:
    return make_dataset(home / "data", splits={"train": 6, "val": 4})


@pytest.fixture(scope="module")
def pretrained(home: Path, dataset: Path) -> Path:
    recipe = fields(dataset, "pretrain", pretrain={"epochs": 1})
    recipe["backbone"] = {"name": "conv4", "width": 4, "image_size": 16}
    pretrain(parse_recipe(recipe), home / "pretrained")
    return home / "pretrained"


@pytest.mark.parametrize(
    ("case", "backbone"),
    [(case, "frozen") for case in CASES] + [(case, "fine-tuned") for case in CASES if case != "ridge"],
)
def test_it_trains_and_is_evaluated(dataset: Path, pretrained: Path, tmp_path: Path, case: str, backbone: str) -> None:
    method, full = CASES[case], case == "peeler, full"
    steps = 2 if METHODS[method["name"]].card.learns or backbone == "fine-tuned" else 0
    start = {"backbone": {"stages": [3, 4]}} if full else {"init": str(pretrained), "backbone": None}
    task = {"backbone": backbone, "tasks": steps, "way": 2, "query": 2, "unknown_way": 2}
    recipe = parse_recipe(fields(dataset, "train", method=method, train=task, **start))
    train(recipe, tmp_path / "run")
    tensors, record = read_checkpoint(tmp_path / "run" / LAST)
    assert record["step"] == steps
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    after = load_model(tmp_path / "run")
    if full:  # two stages of maps out of the backbone
        assert (after.backbone.channels, after.method.channels) == (8 + 4 * 8, 8)
        assert tensors["method.sigma.0.conv1.weight"].shape == (4, 8, 3, 3)
        assert tensors["method.base.rows"].shape == (6, 8)  # of the final maps alone
        assert tensors["method.precision.expand.weight"].any()
    else:
        moved = load_model(pretrained).backbone.fingerprint() != after.backbone.fingerprint()
        assert moved == (backbone == "fine-tuned")
    rows = evaluate(after, dataset, split="val", way=2, query=2, tasks=3, device="cpu").rows
    assert all(torch.from_numpy(values).isfinite().all() for values in rows.values())


def test_a_method_without_a_gradient_trains_no_backbone(dataset: Path, pretrained: Path, tmp_path: Path) -> None:
    task = {"backbone": "fine-tuned", "tasks": 2, "way": 2, "query": 2, "unknown_way": 2}
    recipe = fields(dataset, "train", method=CASES["ridge"], train=task, init=str(pretrained), backbone=None)
    with refused("nothing-to-train", "ridge", "train.tasks = 0"):
        train(parse_recipe(recipe), tmp_path / "run")


@pytest.mark.usefixtures("saved_always")
@pytest.mark.parametrize(
    "case",
    [
        case if case in ("gel", "dnpg", "peeler, full") else pytest.param(case, marks=pytest.mark.long)
        for case, method in CASES.items()
        if METHODS[method["name"]].card.learns
    ],
)
def test_killed_and_resumed_it_learns_the_same(dataset: Path, pretrained: Path, tmp_path: Path, case: str) -> None:
    """Whatever parameters a method has, those that a checkpoint brings are those that the optimizer goes on with."""
    start = {"backbone": {"stages": [3, 4]}} if case == "peeler, full" else {"init": str(pretrained), "backbone": None}
    task = {"backbone": "fine-tuned", "tasks": 4, "way": 2, "query": 2, "unknown_way": 2}
    sections = {"method": CASES[case], "train": task, "optimizer": {"average": 0.5}} | start
    recipe = parse_recipe(fields(dataset, "train", **sections))
    train(recipe, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "killed", callback=Stop(3))
    train(recipe, tmp_path / "killed", resume=True)
    whole, killed = (read_checkpoint(tmp_path / run / LAST)[0] for run in ("whole", "killed"))
    assert whole.keys() == killed.keys()
    assert [name for name, tensor in whole.items() if not torch.equal(tensor, killed[name])] == []


def test_the_recipe_of_full_peeler_splits_the_maps_where_its_backbone_joins_them() -> None:
    recipe = load_recipe("cifar-fs-peeler-full")
    assert recipe.backbone is not None
    with torch.device("meta"):
        backbone = build_backbone(recipe.backbone.name, recipe.backbone.settings)
        method = build_method(recipe.method.name, backbone.channels, recipe.method.settings)
        maps = backbone(torch.empty(3, 3, 32, 32))
        views = method.embed(maps)
    assert maps.shape == (3, 512 + 4 * 256, 4, 4)
    assert recipe.method.settings["early_channels"] == backbone.early_channels == 256
    assert (views.vec.shape, views.local.shape) == ((3, 512), (3, 512 + 512, 4, 4))
