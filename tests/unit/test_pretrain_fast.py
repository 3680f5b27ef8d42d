"""Growing pictures and the average of the weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from glocal.engine.checkpoint import BEST, LAST, read_checkpoint
from glocal.engine.pretrain import PretrainStage, pretrain, shrink
from glocal.engine.recipe import parse_recipe
from glocal.engine.weight_average import WeightAverage
from refusal import refused
from tiny_runs import fields, make_dataset


def test_the_average_follows_its_formula_and_leaves_the_weights_alone() -> None:
    layer = nn.BatchNorm1d(2)
    average = WeightAverage({"part": layer}, 0.9)
    expected = layer.weight.detach().clone()
    for step, value in enumerate((2.0, 5.0)):
        layer.weight.data.fill_(value)
        layer.num_batches_tracked += 1
        average.update(step + 1000)  # beyond the first steps, whose decay is smaller
        expected = 0.9 * expected + 0.1 * value
    with average.in_place():
        torch.testing.assert_close(layer.weight.detach(), expected)
    assert layer.weight.tolist() == [5.0, 5.0]
    assert average.tensors["part.num_batches_tracked"] == 2, "counters are copied, not averaged"


def test_pictures_grow_and_small_ones_keep_their_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    assert shrink(picture, None) is picture
    small = shrink(picture, 16)
    assert small.shape == (2, 3, 16, 16)
    assert (small.float().mean() - picture.float().mean()).abs() < 1
    dataset = make_dataset(tmp_path / "data", size=32)
    sizes: list[int] = []
    prepare = PretrainStage._prepare

    def seen(self: PretrainStage, images: torch.Tensor) -> torch.Tensor:
        sizes.append(images.shape[-1])
        return prepare(self, images)

    monkeypatch.setattr(PretrainStage, "_prepare", seen)
    growing = {"epochs": 4, "batch_size": 10, "sizes": [16, 24], "size_ends": [0.25, 0.75]}
    narrow = {"name": "resnet12", "width": [4, 4, 8, 8], "image_size": 32, "drop_rate": 0.0}
    pretrain(
        parse_recipe(fields(dataset, "pretrain", pretrain=growing, backbone=narrow, optimizer={"average": 0.5})),
        tmp_path / "run",
    )
    assert sizes == [16] * 4 + [24] * 8 + [32] * 4
    last, best = (read_checkpoint(tmp_path / "run" / name)[0] for name in (LAST, BEST))
    name = "layer1.conv1.weight"
    assert not torch.equal(best[f"backbone.{name}"], last[f"backbone.{name}"]), "what is kept is the average"


def test_sizes_without_ends_are_refused(tmp_path: Path) -> None:
    with refused("recipe", "size_ends"):
        parse_recipe(fields(tmp_path, "pretrain", pretrain={"sizes": [16], "size_ends": []}))
