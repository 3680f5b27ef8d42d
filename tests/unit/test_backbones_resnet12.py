from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from glocal.common.errors import RecipeError
from glocal.research.backbones import build_backbone
from glocal.research.backbones.resnet12 import DropBlock, ResNet12, shorten_ramps
from reference.dropblock import drop_blocks


def block_from_the_spec(x: Tensor, w: dict[str, Tensor], name: str, *, training: bool) -> Tensor:
    """One residual block in the order the specification tells it, without dropout."""

    def norm(y: Tensor, bn: str) -> Tensor:
        if training:
            mean, var = y.mean((0, 2, 3)), y.var((0, 2, 3), unbiased=False)
        else:
            mean, var = w[f"{name}.{bn}.running_mean"], w[f"{name}.{bn}.running_var"]
        scaled = (y - mean.view(1, -1, 1, 1)) / (var.view(1, -1, 1, 1) + 1e-5).sqrt()
        return scaled * w[f"{name}.{bn}.weight"].view(1, -1, 1, 1) + w[f"{name}.{bn}.bias"].view(1, -1, 1, 1)

    def leaky(y: Tensor) -> Tensor:
        return torch.where(y > 0, y, 0.1 * y)

    y = leaky(norm(F.conv2d(x, w[f"{name}.conv1.weight"], padding=1), "bn1"))
    y = leaky(norm(F.conv2d(y, w[f"{name}.conv2.weight"], padding=1), "bn2"))
    y = norm(F.conv2d(y, w[f"{name}.conv3.weight"], padding=1), "bn3")
    shortcut = norm(F.conv2d(x, w[f"{name}.downsample.0.weight"]), "downsample.1")
    return F.max_pool2d(leaky(y + shortcut), 2)


def random_statistics(backbone: ResNet12) -> None:
    """Batch norm away from its neutral start, so that a forgotten term shows."""
    for name, tensor in backbone.state_dict().items():
        if "bn" in name or "downsample.1" in name:
            if name.endswith(("weight", "running_var")):
                tensor.uniform_(0.5, 1.5)
            elif name.endswith(("bias", "running_mean")):
                tensor.normal_()


@pytest.mark.parametrize("training", [True, False])
def test_blocks_equal_the_specification(training: bool) -> None:
    torch.manual_seed(0)
    backbone = ResNet12(width=(3, 4, 5, 6), image_size=36, drop_rate=0.0).double().train(training)
    random_statistics(backbone)
    weights = {name: w.clone() for name, w in backbone.state_dict().items()}
    images = torch.randn(3, 3, 36, 36, dtype=torch.float64)
    expected = images
    for stage, got in enumerate(backbone.stages_of(images), start=1):
        expected = block_from_the_spec(expected, weights, f"layer{stage}", training=training)
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def test_full_width_is_the_published_network_and_starts_kaiming_normal_fan_out() -> None:
    backbone = build_backbone("resnet12")
    assert sum(p.numel() for p in backbone.parameters()) == 12_424_320
    assert backbone.stage_channels == (64, 160, 320, 640)
    assert backbone.preprocess.mean == tuple(x / 255 for x in (120.39586422, 115.59361427, 104.54012653))
    assert backbone.preprocess.std == tuple(x / 255 for x in (70.68188272, 68.27635443, 72.54505529))
    torch.manual_seed(0)
    backbone = ResNet12()
    for name, fan_out in (("layer4.conv2", 640 * 9), ("layer4.downsample.0", 640), ("layer1.conv1", 64 * 9)):
        weight = backbone.state_dict()[f"{name}.weight"]
        assert float(weight.std()) == pytest.approx((2 / fan_out) ** 0.5, rel=0.05)


@pytest.mark.parametrize(("side", "map_side", "block"), [(84, 5, 5), (64, 4, 4), (32, 2, 2), (224, 14, 5), (16, 1, 1)])
def test_map_and_block_size(side: int, map_side: int, block: int) -> None:
    backbone = ResNet12(width=2, image_size=side).train()
    assert backbone(torch.randn(2, 3, side, side)).shape == (2, 20, map_side, map_side)
    drop = backbone.layer4.drop
    assert (drop.block_size, drop.drop_rate, drop.steps) == (block, 0.1, 40_000)


def test_any_size_in_evaluation_but_blocks_must_fit_in_training() -> None:
    backbone = ResNet12(width=2)
    assert backbone.eval()(torch.randn(1, 3, 32, 32)).shape == (1, 20, 2, 2)
    with pytest.raises(RecipeError, match=r"dropblock_size must be at most 4 .* got 5; build the backbone with"):
        backbone.train()(torch.randn(1, 3, 32, 32))
    with pytest.raises(RecipeError, match=r"at most 2 \(the side of the 2x2 map it acts on\), got 5"):
        DropBlock(block_size=5).train()(torch.ones(1, 1, 2, 2))
    maps = torch.randn(2, 3, 3, 3)
    assert torch.equal(DropBlock(block_size=4, drop_rate=0.0).train()(maps), maps)


def test_dropout_after_blocks_1_and_2_dropblock_after_3_and_4() -> None:
    backbone = ResNet12(width=8, image_size=32, dropblock_steps=1).train()
    images = torch.randn(4, 3, 32, 32)
    zeros = [float((x == 0).float().mean()) for x in backbone.stages_of(images)]
    assert zeros[:2] == pytest.approx([0.1, 0.1], abs=0.03)
    assert zeros[2:] == [0, 0]  # the ramp starts at keep = 1
    zeros = [float((x == 0).float().mean()) for x in backbone.stages_of(images)[2:]]
    assert zeros == pytest.approx([0.1, 0.1], abs=0.05)
    assert int(backbone.state_dict()["layer3.drop.step"]) == int(backbone.state_dict()["layer4.drop.step"]) == 2


def ramped(block_size: int, drop_rate: float = 0.1) -> DropBlock:
    """A DropBlock at the end of its ramp, in training mode."""
    drop = DropBlock(block_size=block_size, drop_rate=drop_rate, steps=1)
    drop.step.fill_(1)
    return drop.train()


@pytest.mark.parametrize(
    ("shape", "block"), [((3, 4, 10, 10), 5), ((2, 8, 5, 5), 5), ((4, 5, 4, 7), 2), ((2, 3, 6, 6), 1)]
)
def test_equals_the_loops(shape: tuple[int, ...], block: int) -> None:
    maps = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(7)
    fast = ramped(block, 0.3)(maps)
    torch.manual_seed(7)
    slow = drop_blocks(maps, block_size=block, keep=0.7)
    assert 0 < (slow == 0).sum() < maps.numel()  # the draw is not trivial
    torch.testing.assert_close(fast, slow)


def test_ramp_counts_training_passes_only() -> None:
    drop, maps = DropBlock(block_size=2, steps=10), torch.ones(2, 3, 4, 4)
    drop.eval()
    assert drop(maps) is maps
    assert drop.step == 0
    drop.train()
    assert torch.equal(drop(maps), maps)  # the first pass still keeps everything
    for _ in range(4):
        drop(maps)
    assert drop.step == 5
    assert float(drop.keep) == pytest.approx(0.95)
    for _ in range(20):
        drop(maps)
    assert float(drop.keep) == pytest.approx(0.9)
    other = DropBlock(block_size=2, steps=10)
    other.load_state_dict(drop.state_dict())
    assert other.step == 25


def test_a_map_dropped_whole_is_zero_and_half_precision_does_not_overflow() -> None:
    drop, maps = ramped(2, 0.99), torch.ones(1, 1, 2, 2, requires_grad=True)
    torch.manual_seed(0)
    out = drop(maps)
    out.sum().backward()
    assert torch.equal(out, torch.zeros(1, 1, 2, 2))
    assert maps.grad is not None
    assert torch.equal(maps.grad, torch.zeros(1, 1, 2, 2))
    torch.manual_seed(0)
    out = ramped(2)(torch.ones(64, 64, 8, 8, dtype=torch.float16))  # 262,144 cells, above the largest float16
    assert out.dtype == torch.float16
    assert float(out.max()) == pytest.approx(1.1, abs=0.03)


def test_a_short_run_shortens_the_ramp_and_a_long_one_does_not():
    net = build_backbone("resnet12", {"width": (4, 4, 8, 8), "image_size": 32, "dropblock_steps": 900})
    shorten_ramps(net, 5000)
    assert net.layer4.drop.steps == 900
    shorten_ramps(net, 100)
    assert (net.layer3.drop.steps, net.layer4.drop.steps) == (100, 100)
    shorten_ramps(net, 100, passes=4)  # four tasks in turn are one step
    drop = net.layer3.drop
    drop.step += 43
    assert drop.keep.item() == pytest.approx(1 - 0.1 * 10 / 100)
    shorten_ramps(net, 0)
    assert net.layer3.drop.steps == 1
