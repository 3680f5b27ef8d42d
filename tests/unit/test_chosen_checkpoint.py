"""BEST is the checkpoint of the highest validation, by the metric the recipe names, and the earliest of equals."""

from __future__ import annotations

from pathlib import Path

import pytest

from glocal.engine import loop
from glocal.engine.checkpoint import BEST, LAST, read_checkpoint
from glocal.engine.pretrain import pretrain
from glocal.engine.recipe import parse_recipe
from tiny_runs import fields, make_dataset

# At steps 4, 8, 12 and 15, the last of which nobody needs to ask for.
VALIDATIONS = {"auroc": (0.5, 0.8, 0.8, 0.3), "acc": (0.6, 0.4, 0.7, 0.2)}


@pytest.mark.parametrize(("choose", "step"), [("auroc", 8), ("acc", 12)])
def test_the_highest_and_earliest_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choose: str, step: int):
    coming = [dict(zip(VALIDATIONS, values, strict=True)) for values in zip(*VALIDATIONS.values(), strict=True)]
    script = iter(coming)
    monkeypatch.setattr(loop.Validator, "__call__", lambda self, model: next(script))
    recipe = parse_recipe(fields(make_dataset(tmp_path / "data"), "pretrain", validation={"choose": choose}))
    pretrain(recipe, tmp_path / "run")
    assert next(script, None) is None, "validated at every fourth step and at the end"
    record = read_checkpoint(tmp_path / "run" / BEST)[1]
    assert (record["step"], record["validation"]) == (step, coming[step // 4 - 1])
    last = read_checkpoint(tmp_path / "run" / LAST)[1]
    assert (last["step"], last["best"]) == (15, max(VALIDATIONS[choose]))
