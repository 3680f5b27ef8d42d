"""A batch in parts: the same gradient for a fraction of the memory; and pictures that are made ahead of time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from faults import Stop
from glocal.research.backbones.resnet12 import DropBlock
from glocal.research.data.loader import Ahead
from glocal.research.engine.checkpoint import LAST
from glocal.research.engine.distributed import StepLosses
from glocal.research.engine.pretrain import PretrainStage, pretrain
from glocal.research.engine.recipe import parse_recipe
from tiny_runs import fields

CPU = torch.device("cpu")


def stage_of(dataset: Path, **pretraining: Any) -> PretrainStage:
    recipe = parse_recipe(
        fields(
            dataset,
            "pretrain",
            augment={"rotate": "four", "flip": True},
            pretrain={"batch_size": 10} | pretraining,
            optimizer={"momentum": 0.0, "lr": 1.0},
        )
    )
    return PretrainStage(recipe, CPU)


def step_of(stage: PretrainStage) -> tuple[dict[str, float], list[torch.Tensor], list[int]]:
    """Terms, gradients and pictures per pass of one step, batch norm in evaluation mode and nothing dropped."""
    seen: list[int] = []
    stage.model.backbone.register_forward_hook(lambda module, images, maps: seen.append(len(images[0])))
    forward, terms = StepLosses(stage).eval(), dict[str, float]()
    for part in range(stage.parts):
        for name, term in forward(2, part).items():
            term.backward()
            terms[name] = terms.get(name, 0.0) + term.item()
    return terms, [p.grad.clone() for p in forward.parameters() if p.grad is not None], seen


def test_parts_of_a_batch_add_up_to_its_gradient_and_have_all_rotations(dataset: Path) -> None:
    whole, parts = (step_of(stage_of(dataset, **how)) for how in ({}, {"micro_batch": 11}))
    assert list(whole[0]) == ["base"]
    assert (whole[2], parts[2]) == ([40], [10, 10, 10, 10])
    assert parts[0] == pytest.approx(whole[0], rel=1e-5)
    for ours, theirs in zip(parts[1], whole[1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    stage = stage_of(dataset, batch_size=8, micro_batch=8)
    batch = stage.batch(0)
    part = batch.images[1 :: stage.parts]
    assert stage.parts == 4
    upright = part[:2]
    assert torch.equal(part[2:4], upright.rot90(1, (-2, -1)))
    assert torch.equal(batch.place[1 :: stage.parts], batch.place[1 :: stage.parts][:2].repeat(4))


@pytest.mark.usefixtures("saved_always")
def test_the_ramp_of_dropblock_counts_steps_and_a_resumed_run_is_the_same(dataset: Path, tmp_path: Path):
    recipe = parse_recipe(fields(dataset, "pretrain", pretrain={"epochs": 2, "micro_batch": 4}))
    model = pretrain(recipe, tmp_path / "whole")
    ramps = [part for part in model.backbone.modules() if isinstance(part, DropBlock)]
    steps = 2 * (5 * 8 // 8)
    assert [(part.passes, int(part.step)) for part in ramps] == [(2, 2 * steps)] * 2
    whole = (tmp_path / "whole" / LAST).read_bytes()
    with pytest.raises(KeyboardInterrupt):
        pretrain(recipe, tmp_path / "run", callback=Stop(3))
    pretrain(recipe, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / LAST).read_bytes() == whole


def test_what_goes_wrong_ahead_is_said_when_it_is_asked_for() -> None:
    def make(i: int) -> int:
        if i:
            raise OSError("gone")
        return i

    ahead = Ahead(make, end=3)
    assert ahead(0) == 0
    with pytest.raises(OSError, match="gone"):
        ahead(1)
