"""docs/paper-vs-code.md covers every method and every setting that is ours."""

from __future__ import annotations

from pathlib import Path

from glocal.engine.recipe import Data, MetaTraining, Optimizer, Pretraining, Speed, Tasks
from glocal.methods import ADDED_TO_GEL, METHODS, SWITCHES

PAGE = (Path(__file__).parents[2] / "docs/paper-vs-code.md").read_text("utf-8")
PUBLISHED = {  # named by the papers or by their programs, or no matter of numbers
    "data": {"dataset", "workers", "skip_bad"},
    "pretrain": {"epochs", "batch_size"},
    "optimizer": {"lr", "lr_backbone", "momentum", "weight_decay", "schedule", "milestones", "gamma"},
    "train": {*Tasks.model_fields, "tasks", "tasks_per_step", "backbone"},
    "speed": set(),
}
SECTIONS = {"data": Data, "pretrain": Pretraining, "optimizer": Optimizer, "train": MetaTraining, "speed": Speed}


def test_every_method_is_there() -> None:
    assert [name for name in METHODS if f"`{name}`" not in PAGE] == []


def test_every_setting_that_is_ours_is_there() -> None:
    ours = [*(f"`{name}" for name in (*ADDED_TO_GEL, *SWITCHES))]
    for section, model in SECTIONS.items():
        ours += [f"`{section}.{key}" for key in model.model_fields if key not in PUBLISHED[section]]
    assert len(ours) > 20
    assert [name for name in ours if name not in PAGE] == []
