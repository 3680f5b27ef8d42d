"""Growing and turned pictures, a network as its own teacher, averages of weights, a start from a narrower network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from faults import Stop
from glocal.research.backbones.resnet12 import ResNet12
from glocal.research.backbones.widen import widen
from glocal.research.engine import loop
from glocal.research.engine.checkpoint import BEST, LAST, load_model, read_checkpoint, write_checkpoint
from glocal.research.engine.pretrain import PretrainStage, pretrain, shrink
from glocal.research.engine.recipe import Recipe, parse_recipe
from glocal.research.engine.weight_average import WeightAverage
from glocal.research.ops.similarity import pool
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


def test_a_second_classifier_tells_by_how_many_quarters_a_picture_was_turned(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "data")
    turned = {"augment": {"rotate": "some"}, "pretrain": {"batch_size": 8, "turn_weight": 0.25, "epochs": 2}}
    recipe = parse_recipe(fields(dataset, "pretrain", **turned))
    stage = PretrainStage(recipe, torch.device("cpu"))
    nn.init.normal_(stage.turns.weight)
    stage.model.backbone.eval()
    batch, expected = stage.batch(0), torch.zeros(())
    for picture, place, quarters in zip(batch.images, batch.place, batch.quarters.tolist(), strict=True):
        assert torch.equal(picture, stage.images[place].rot90(quarters, (-2, -1)))
        vector = pool(stage.model.backbone(stage._prepare(picture[None])))
        expected = expected - stage.turns(vector).log_softmax(1)[0, quarters] / 8
    assert len(set(batch.quarters.tolist())) > 1
    assert stage.losses(0)["turn"].item() == pytest.approx(0.25 * expected.item(), rel=1e-4)

    pretrain(recipe, tmp_path / "run")
    assert not any(name.startswith("turns") for name in read_checkpoint(tmp_path / "run" / BEST)[0])
    with refused("recipe", 'set augment.rotate = "some"'):
        parse_recipe(fields(dataset, "pretrain", pretrain={"turn_weight": 0.25}))


def test_a_network_learns_what_it_said_before_of_each_picture(tmp_path: Path) -> None:
    """Against the formula: (1 - w) CE + w T² KL(teacher / T || own / T), the teacher on plain and mirrored pictures."""
    dataset, first = make_dataset(tmp_path / "data"), tmp_path / "first"
    pretrain(parse_recipe(fields(dataset, "pretrain", pretrain={"epochs": 1})), first)
    again = {"init": str(first), "backbone": None, "augment": {"flip": True}}
    recipe = parse_recipe(fields(dataset, "pretrain", **again, pretrain={"batch_size": 8, "teacher_weight": 0.25}))
    stage, teacher = PretrainStage(recipe, torch.device("cpu")), load_model(first).eval()
    assert stage.said is not None
    assert stage.model.backbone.training
    with torch.no_grad():
        for parameter in stage.modules["backbone"].parameters():
            parameter.mul_(1.1)  # it has learned since
        stage.model.backbone.eval()
        batch, closed, apart = stage.batch(0), 0.0, 0.0
        for picture, place in zip(batch.images, batch.place, strict=True):
            said = torch.zeros(len(stage.data.classes))
            for view in (stage.images[place], stage.images[place].flip(-1)):
                vector = pool(teacher.backbone(stage._prepare(view[None])))[0]
                said += (teacher.extra["base.weight"] @ vector + teacher.extra["base.bias"]) / 2
            logits = stage.classifier(pool(stage.model.backbone(stage._prepare(picture[None]))))[0]
            closed -= logits.log_softmax(0)[stage.labels[place]].item() / 8
            p = (said / 4).softmax(0)
            apart += 16 * (p * (p.log() - (logits / 4).log_softmax(0))).sum().item() / 8
        terms = stage.losses(0)
    assert terms["base"].item() == pytest.approx(0.75 * closed, rel=1e-4)
    assert terms["teacher"].item() == pytest.approx(0.25 * apart, rel=1e-3)

    for other in ({}, {"backbone": None, "init": "embedded-protonet"}):
        untaught = parse_recipe(fields(dataset, "pretrain", **other, pretrain={"teacher_weight": 0.25}))
        with refused("no-teacher", "--init"):
            PretrainStage(untaught, torch.device("cpu"))


def test_with_a_teacher_and_turned_pictures_a_resumed_run_is_the_same(tmp_path: Path, monkeypatch) -> None:
    dataset, first = make_dataset(tmp_path / "data"), tmp_path / "first"
    pretrain(parse_recipe(fields(dataset, "pretrain", pretrain={"epochs": 1})), first)
    how = {"epochs": 1, "batch_size": 8, "teacher_weight": 0.5, "turn_weight": 0.5}
    again = {"init": str(first), "backbone": None, "augment": {"rotate": "some"}}
    recipe = parse_recipe(fields(dataset, "pretrain", **again, pretrain=how))
    pretrain(recipe, tmp_path / "whole")
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        pretrain(recipe, tmp_path / "run", callback=Stop(3))
    pretrain(recipe, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / LAST).read_bytes() == (tmp_path / "whole" / LAST).read_bytes()


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


def test_a_widened_network_has_the_function_of_the_narrow_one_and_its_copies_part() -> None:
    torch.manual_seed(0)
    narrow, wide = (ResNet12(width=width, image_size=32, drop_rate=0.0) for width in ([3, 4, 5, 6], [5, 9, 11, 20]))
    for name, tensor in narrow.state_dict().items():  # batch norm as after a training, no channel like another
        if name.endswith("running_mean"):
            tensor.normal_()
        elif tensor.ndim == 1:
            tensor.uniform_(0.5, 2)
    widen(narrow, wide, torch.Generator().manual_seed(1))
    images = torch.randn(4, 3, 32, 32)
    maps = narrow.eval()(images)
    torch.testing.assert_close(wide.eval()(images), maps[:, torch.arange(20) % 6], rtol=1e-4, atol=1e-5)
    wide.train()(images).square().sum().backward()
    gradient = wide.layer2.conv1.weight.grad
    assert gradient is not None
    assert not torch.allclose(gradient[:4], gradient[4:8], rtol=1e-2), "copies of one channel learn differently"


def test_pre_training_goes_on_from_a_narrower_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = make_dataset(tmp_path / "data", size=16)

    def recipe(width: list[int], folder: Path = dataset, **pretraining: object) -> Recipe:
        backbone = {"name": "resnet12", "width": width, "image_size": 16, "drop_rate": 0.0}
        return parse_recipe(fields(folder, "pretrain", pretrain={"epochs": 1, **pretraining}, backbone=backbone))

    monkeypatch.setattr("glocal.research.engine.pretrain.WIDEN_NOISE", 0.0)
    pretrain(recipe([2, 3, 4, 5]), tmp_path / "narrow")
    source = str(tmp_path / "narrow")
    before = load_model(source)
    stage = PretrainStage(recipe([4, 4, 6, 15], widen=source), torch.device("cpu"))
    images = stage._prepare(stage.images[torch.arange(6)])
    with torch.no_grad():
        logits = stage.classifier(pool(stage.model.eval().backbone(images)))
        narrow = pool(before.eval().backbone(images)) @ before.extra["base.weight"].T + before.extra["base.bias"]
    torch.testing.assert_close(logits, narrow, rtol=1e-4, atol=1e-5)
    with refused("narrower"):
        PretrainStage(recipe([1, 3, 4, 5], widen=source), torch.device("cpu"))
    other = make_dataset(tmp_path / "other", size=16)
    for split in other.iterdir():
        for each in list(split.iterdir()):
            each.rename(each.with_name(f"new {each.name}"))
    with refused("classes"):
        PretrainStage(recipe([4, 4, 6, 15], other, widen=source), torch.device("cpu"))
    with refused("not-widened"):
        PretrainStage(recipe([4, 4, 6, 15], widen="photos-protonet"), torch.device("cpu"))


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
    backbone = {"name": "resnet12", "width": [4, 4, 6, 15], "image_size": 16, "drop_rate": 0.0}
    wider = fields(known, "pretrain", pretrain={"epochs": 1, "widen": str(bare)}, backbone=backbone)
    with refused("classes" if missing == "data" else "not-widened"):
        PretrainStage(parse_recipe(wider), torch.device("cpu"))
