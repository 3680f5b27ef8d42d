"""What the authors' program does beside its settings, as options of a fine-tuned stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from glocal.research.backbones.resnet12 import DropBlock
from glocal.research.engine.checkpoint import LAST, load_model, read_checkpoint
from glocal.research.engine.pretrain import pretrain
from glocal.research.engine.recipe import parse_recipe
from glocal.research.engine.train import train
from refusal import refused
from tiny_runs import fields

COUNTER = "backbone.layer3.drop.step"


@pytest.fixture(scope="module")
def before(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("before")
    pretrain(parse_recipe(fields(dataset, "pretrain", pretrain={"epochs": 2})), folder)
    assert load_model(folder).tensors()[COUNTER] > 0
    return folder


def recipe(dataset: Path, before: Path, **settings: Any) -> Any:
    return parse_recipe(fields(dataset, "train", backbone=None, init=str(before), train={"tasks": 4} | settings))


def test_the_ramp_of_dropblock_restarts_or_goes_on(dataset: Path, before: Path, tmp_path: Path) -> None:
    old = read_checkpoint(before / "best.safetensors")[0][COUNTER].item()
    on = train(recipe(dataset, before), tmp_path / "on")
    assert on.tensors()[COUNTER] == old + 4
    anew = train(recipe(dataset, before, dropblock_ramp=50), tmp_path / "anew")
    assert anew.tensors()[COUNTER] == 4
    ramps = [part for part in anew.backbone.modules() if isinstance(part, DropBlock)]
    assert [part.steps for part in ramps] == [50, 50], "not cut to a third of the run"
    assert ramps[0].keep.item() == pytest.approx(1 - 0.1 * 4 / 50)
    resumed = train(recipe(dataset, before, dropblock_ramp=50), tmp_path / "anew", resume=True)
    assert read_checkpoint(tmp_path / "anew" / LAST)[0][COUNTER] == resumed.tensors()[COUNTER] == 4


@pytest.mark.parametrize("setting", [{"dropblock_ramp": 50}, {"unknown_support": True}, {"norm_momentum": 0.19}])
def test_a_frozen_backbone_takes_none_of_it(dataset: Path, before: Path, setting: dict[str, Any]) -> None:
    with refused("recipe", f"train.{next(iter(setting))}", "frozen", 'train.backbone = "fine-tuned"'):
        recipe(dataset, before, backbone="frozen", **setting)
