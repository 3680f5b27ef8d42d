"""docs/paper-vs-code.md covers every method and every setting that is ours."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

from glocal.research.engine.recipe import Data, MetaTraining, Optimizer, Pretraining, Speed, Tasks
from glocal.research.methods import METHODS, SWITCHES

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs/paper-vs-code.md").read_text("utf-8")
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


def test_the_tests_that_hold_the_eleven_points_exist() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| \d+\. ", line)]
    assert [int(row[2 : row.index(".")]) for row in rows] == list(range(1, 12))
    files = {path.name: path.read_text("utf-8") for path in TESTS.rglob("test_*.py")}
    for row in rows:
        file = ""
        for word in re.findall(r"`((?:test_\w+\.py)?(?:::test_\w+)?)`", row.rsplit("|", 2)[1]):
            named, _, function = word.partition("::")
            file = named or file  # `::test` is in the file before
            assert f"def {function}(" in files[file] if function else file in files, word
        assert file, row
