"""docs/paper-vs-code.md covers every method and every setting that is ours."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

from glocal.research.engine.recipe import Data, MetaTraining, Optimizer, Pretraining, Speed, Tasks
from glocal.research.methods import METHODS, SWITCHES

PAGE = (Path(__file__).parents[2] / "docs/paper-vs-code.md").read_text("utf-8")
PUBLISHED = {  # named by the papers or by their programs, or no matter of numbers
    "data": {"dataset", "workers", "skip_bad"},
    "pretrain": {"epochs", "batch_size"},
    "optimizer": {"lr", "lr_backbone", "momentum", "weight_decay", "schedule", "milestones", "gamma"},
    "train": {*Tasks.model_fields, "tasks", "tasks_per_step", "backbone"},
    "speed": set(),
}
SECTIONS = {"data": Data, "pretrain": Pretraining, "optimizer": Optimizer, "train": MetaTraining, "speed": Speed}


def test_every_method_and_every_setting_that_is_ours_is_there() -> None:
    added = signature(METHODS["frozen-gel"]).parameters.keys() - signature(METHODS["gel"]).parameters.keys()
    ours = [f"`{name}" for name in (*added, *SWITCHES)]
    for section, model in SECTIONS.items():
        ours += [f"`{section}.{key}" for key in model.model_fields if key not in PUBLISHED[section]]
    assert len(ours) > 20
    assert [name for name in ours if name not in PAGE] == []
    assert [name for name in METHODS if f"`{name}`" not in PAGE] == []
