"""Averages of weights, and pre-training that starts from another run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from glocal.research.engine.checkpoint import BEST, LAST, load_model, read_checkpoint, write_checkpoint
from glocal.research.engine.loop import WeightAverage
from glocal.research.engine.pretrain import PretrainStage, pretrain
from glocal.research.engine.recipe import parse_recipe
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


def test_what_a_run_keeps_is_the_average(tmp_path: Path) -> None:
    recipe = parse_recipe(
        fields(
            make_dataset(tmp_path / "data"),
            "pretrain",
            pretrain={"epochs": 1},
            validation={"every": 1000},
            optimizer={"average": 0.5},
        )
    )
    pretrain(recipe, tmp_path / "run")
    last, best = (read_checkpoint(tmp_path / "run" / name)[0] for name in (LAST, BEST))
    name = next(name for name in best if name.startswith("backbone.") and best[name].is_floating_point())
    torch.testing.assert_close(best[name], last[f"average.{name}"])
    assert not torch.equal(best[name], last[name])


def test_pre_training_that_goes_on_keeps_the_classifier_where_the_classes_are_the_same(tmp_path: Path) -> None:
    known, other = make_dataset(tmp_path / "known", size=16), make_dataset(tmp_path / "other", size=16)
    (other / "train").joinpath(sorted(path.name for path in (other / "train").iterdir())[0]).rename(
        other / "train" / "new"
    )
    pretrain(parse_recipe(fields(known, "pretrain", pretrain={"epochs": 1})), tmp_path / "first")
    before = load_model(tmp_path / "first").extra["base.weight"]
    for folder, same in ((known, True), (other, False)):
        more = parse_recipe(fields(folder, "pretrain", init=str(tmp_path / "first")))
        stage = PretrainStage(more, torch.device("cpu"))
        assert torch.equal(stage.classifier.weight.detach(), before) == same


@pytest.mark.parametrize("missing", ["data", "extra.base.bias"])
def test_weights_that_do_not_say_what_they_learned_lend_their_backbone_alone(missing: str, tmp_path: Path) -> None:
    """As those of published programs: no classes are known of them, and the classifier may have no bias."""
    known = make_dataset(tmp_path / "known", size=16)
    pretrain(parse_recipe(fields(known, "pretrain", pretrain={"epochs": 1})), tmp_path / "first")
    tensors, record = read_checkpoint(tmp_path / "first" / BEST)
    bare = tmp_path / "bare.safetensors"
    write_checkpoint(
        bare,
        {name: tensor for name, tensor in tensors.items() if name != missing},
        {name: value for name, value in record.items() if name != missing},
    )
    stage = PretrainStage(parse_recipe(fields(known, "pretrain", init=str(bare))), torch.device("cpu"))
    assert not torch.equal(stage.classifier.weight.detach(), tensors["extra.base.weight"])
    learned = stage.model.backbone.state_dict()
    assert all(torch.equal(learned[name], tensors[f"backbone.{name}"]) for name in learned)
