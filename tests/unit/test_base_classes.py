"""What the engine hands to methods that remember the base classes, and how they keep it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from glocal.research.data import open_dataset
from glocal.research.engine import features
from glocal.research.engine.checkpoint import TrainedModel, load_model
from glocal.research.engine.loop import Validator, run_stage
from glocal.research.engine.pretrain import PretrainStage
from glocal.research.engine.recipe import parse_recipe
from glocal.research.engine.train import TrainStage, base_classes
from glocal.research.types import normalize
from tiny_runs import fields


def test_rows_are_means_of_the_pictures_asked_for(dataset: Path, tmp_path: Path) -> None:
    recipe = fields(dataset, "pretrain", pretrain={"epochs": 1})
    recipe["backbone"] = {"name": "conv4", "width": 4, "image_size": 16}
    run_stage(PretrainStage, parse_recipe(recipe), tmp_path / "run")
    model, data = load_model(tmp_path / "run"), open_dataset(dataset, "train")
    rows = np.sort(np.concatenate([data.members(c)[:3] for c in range(len(data.classes))]))
    found = base_classes(model, data, rows, device=torch.device("cpu"), workers=1)

    assert found.names == tuple(data.classes)
    assert torch.equal(found.weight, model.extra["base.weight"])
    with torch.no_grad():
        for c in range(len(data.classes)):
            pictures = torch.stack([torch.from_numpy(data.image(i)) for i in data.members(c)[:3]])
            images = normalize(pictures.permute(0, 3, 1, 2), model.backbone.preprocess)
            expected = model.backbone.eval()(images).mean(dim=(0, 2, 3))
            assert torch.allclose(found.centre[c], expected, atol=1e-5)
    assert torch.allclose(found.mean, found.centre.mean(dim=0), atol=1e-6)  # every class has three pictures

    without = TrainedModel(model.backbone, model.method, model.record)
    assert torch.equal(base_classes(without, data, rows, device=torch.device("cpu"), workers=1).weight, found.centre)


@pytest.mark.parametrize("name", ["rfdnet", "snatcher-f"])
def test_large_banks_keep_means_and_nothing_changes(name: str, dataset: Path, tmp_path: Path, monkeypatch):
    """To the bit, or a table would depend on the size of a data set."""
    frozen = {"backbone": "frozen", "views": 2}
    recipe = parse_recipe(fields(dataset, "train", backbone={"image_size": 32}, method={"name": name}, train=frozen))
    found, sizes = [], []
    for limit in (1 << 30, 0):
        monkeypatch.setattr(features, "MAPS_UP_TO", limit)
        monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / f"cache-{limit}"))
        stage = TrainStage(recipe, torch.device("cpu"))
        found.append({name: term.item() for name, term in stage.losses(0).items()})
        found[-1] |= Validator(recipe, torch.device("cpu"))(stage.model)
        sizes.append(sum(np.load(file).nbytes for file in (tmp_path / f"cache-{limit}").rglob("maps.npy")))
    assert found[0] == found[1]
    assert sizes[0] == 4 * sizes[1], "2x2 maps"


def test_what_a_method_draws_for_them_depends_on_the_seed_alone(dataset: Path) -> None:
    """Encoding draws numbers too, and what the cache has is not encoded: that must not change a training."""
    recipe = fields(dataset, "train", method={"name": "rfdnet"}, train={"backbone": "frozen"})
    keys = []
    for seed, noise in ((0, 1), (0, 2), (1, 2)):
        torch.manual_seed(noise)
        keys.append(TrainStage(parse_recipe({**recipe, "seed": seed}), torch.device("cpu")).model.method.key.rows)
    assert torch.equal(keys[0], keys[1])
    assert not torch.equal(keys[0], keys[2])
