"""PEELER's full model through the engine: two stages of maps out of the backbone, trained, saved, evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from glocal.backbones import build_backbone
from glocal.engine.checkpoint import LAST, load_model, read_checkpoint
from glocal.engine.evaluate import evaluate
from glocal.engine.recipe import load_recipe, parse_recipe
from glocal.engine.train import train
from glocal.methods import build_method
from tiny_runs import fields, make_dataset


@pytest.mark.parametrize("backbone", ["frozen", "fine-tuned"])
def test_it_trains_and_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backbone: str) -> None:
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    data = make_dataset(tmp_path / "data", splits={"train": 5, "val": 4})
    recipe = fields(
        data,
        "train",
        backbone={"stages": [3, 4]},
        method={"name": "peeler", "variant": "gaussian", "early_channels": 8, "sigma_channels": 4},
        train={"backbone": backbone, "tasks": 2},
    )
    train(parse_recipe(recipe), tmp_path / "run")
    tensors, record = read_checkpoint(tmp_path / "run" / LAST)
    assert (record["step"], record["backbone"]["settings"]["stages"]) == (2, [3, 4])
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    assert tensors["method.sigma.0.conv1.weight"].shape == (4, 8, 3, 3)
    assert tensors["method.base.rows"].shape == (5, 8)  # of the final maps alone
    assert tensors["method.precision.expand.weight"].any()
    model = load_model(tmp_path / "run")
    assert (model.backbone.channels, model.method.channels) == (8 + 4 * 8, 8)
    rows = evaluate(model, data, split="val", way=2, query=2, tasks=3, device="cpu").rows
    assert all(torch.from_numpy(values).isfinite().all() for values in rows.values())


def test_the_shipped_recipe_splits_the_maps_where_its_backbone_joins_them() -> None:
    recipe = load_recipe("cifar-fs-peeler-full")
    assert recipe.backbone is not None
    with torch.device("meta"):
        backbone = build_backbone(recipe.backbone.name, **recipe.backbone.settings)
        method = build_method(recipe.method.name, backbone.channels, recipe.method.settings)
        maps = backbone(torch.empty(3, 3, 32, 32))
        views = method.embed(maps)
    assert maps.shape == (3, 512 + 4 * 256, 4, 4)
    assert recipe.method.settings["early_channels"] == backbone.early_channels == 256
    assert views.vec.shape == (3, 512)
    assert views.local.shape == (3, 512 + 512, 4, 4)
