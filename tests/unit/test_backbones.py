"""What every backbone promises, whatever its architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from glocal.common.errors import DataError
from glocal.research.backbones import build_backbone
from glocal.research.backbones.resnet12 import Conv3x3
from glocal.research.types import normalize
from refusal import refused

# name, settings, side of the test picture, (channels, side) of every stage
CASES: list[tuple[str, dict[str, Any], int, list[tuple[int, int]]]] = [
    ("conv4", {}, 84, [(64, 42), (64, 21), (64, 10), (64, 5)]),
    ("conv4", {"width": 8, "image_size": 32}, 32, [(8, 16), (8, 8), (8, 4), (8, 2)]),
    ("resnet12", {"width": 4}, 84, [(4, 42), (10, 21), (20, 10), (40, 5)]),
    ("resnet12", {"width": (6, 12, 24, 48), "image_size": 32}, 32, [(6, 16), (12, 8), (24, 4), (48, 2)]),
    ("resnet18", {"image_size": 224}, 224, [(64, 56), (128, 28), (256, 14), (512, 7)]),
    ("resnet18", {}, 84, [(64, 84), (128, 42), (256, 21), (512, 11)]),
    ("efficientnet-lite0", {"pretrained": False}, 224, [(24, 56), (40, 28), (112, 14), (320, 7), (1280, 7)]),
    ("pixels", {"image_size": 8}, 8, [(192, 1)]),
]
SMALL: list[tuple[str, dict[str, Any], int]] = [
    ("conv4", {"width": 8, "image_size": 32}, 32),
    ("resnet12", {"width": 4, "image_size": 32}, 32),
    ("resnet18", {"image_size": 32}, 32),
    ("efficientnet-lite0", {"pretrained": False, "image_size": 64}, 64),
]


def pictures(side: int, count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def ids(case: Any) -> str:
    return case if isinstance(case, str) else ""


@pytest.mark.parametrize(("name", "settings", "side", "stages"), CASES, ids=ids)
def test_maps_of_every_stage(name: str, settings: dict[str, Any], side: int, stages: list[tuple[int, int]]) -> None:
    backbone, images = build_backbone(name, settings).eval(), pictures(side, 1)
    assert backbone.preprocess.size == side
    with torch.inference_mode():
        maps = backbone.stages_of(images)
        last = backbone(images)
    assert [tuple(x.shape) for x in maps] == [(1, c, s, s) for c, s in stages]
    assert backbone.stage_channels == tuple(c for c, _ in stages)
    assert backbone.channels == stages[-1][0]
    assert torch.equal(last, maps[-1])  # deterministic in evaluation mode, and the same pass
    assert torch.isfinite(last).all()


@pytest.mark.parametrize(("name", "settings", "side"), SMALL, ids=ids)
def test_frozen_means_frozen(name: str, settings: dict[str, Any], side: int) -> None:
    backbone, images = build_backbone(name, settings, trainable=False), pictures(side)
    whole = torch.nn.ModuleDict({"backbone": backbone, "head": torch.nn.Dropout()}).train()
    assert whole["head"].training
    assert not any(module.training for module in backbone.modules())
    before = backbone.fingerprint()
    first, second = backbone(images), backbone(images)
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert not any(p.requires_grad for p in backbone.parameters())
    assert backbone.fingerprint() == before  # no running statistic, no counter has moved
    backbone.trainable = True
    backbone.train()(images)
    assert all(module.training for module in backbone.modules())
    assert backbone.fingerprint() != before


@pytest.mark.parametrize(("name", "settings", "side"), SMALL, ids=ids)
def test_trainable_gives_every_parameter_a_gradient(name: str, settings: dict[str, Any], side: int) -> None:
    torch.manual_seed(0)
    backbone = build_backbone(name, settings).train()
    backbone(pictures(side, 4)).square().mean().backward()
    for label, parameter in backbone.named_parameters():
        assert parameter.grad is not None, label
        assert torch.isfinite(parameter.grad).all(), label
        assert parameter.grad.abs().sum() > 0, label


@pytest.mark.parametrize(("name", "settings", "side"), SMALL, ids=ids)
def test_neither_the_batch_nor_the_memory_layout_changes_a_map(name: str, settings: dict[str, Any], side: int) -> None:
    backbone, images = build_backbone(name, settings).eval(), pictures(side)
    before = backbone.fingerprint()
    with torch.no_grad():
        plain = backbone(images)
        torch.testing.assert_close(backbone(images[1:2]), plain[1:2], rtol=1e-4, atol=1e-5)
        backbone.to(memory_format=torch.channels_last)
        last = backbone(images.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(last, plain, rtol=1e-4, atol=1e-5)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert backbone.fingerprint() == before
    backbone.train()(images.contiguous(memory_format=torch.channels_last)).sum().backward()


@pytest.mark.parametrize(("name", "settings", "side"), SMALL, ids=ids)
def test_fingerprint_follows_weights_through_a_file(name: str, settings: dict[str, Any], side: int, tmp_path: Path):
    backbone = build_backbone(name, settings).train()
    backbone(pictures(side))  # moves counters and running statistics away from their start
    save_file(backbone.state_dict(), tmp_path / "weights.safetensors")
    other = build_backbone(name, settings)
    assert other.fingerprint() != backbone.fingerprint()
    other.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    assert other.fingerprint() == backbone.fingerprint()
    for key in list(other.state_dict())[:: max(1, len(other.state_dict()) // 4)]:
        tensor = other.state_dict()[key]
        tensor.view(-1)[-1:].add_(1)
        assert other.fingerprint() != backbone.fingerprint(), key
        tensor.copy_(backbone.state_dict()[key])
    assert other.fingerprint() == backbone.fingerprint()
    assert other.bfloat16().fingerprint() != backbone.fingerprint()


def test_pixels_is_the_picture_and_a_subclass_has_a_fingerprint_of_its_own() -> None:
    backbone, images = build_backbone("pixels", {"image_size": 4}), pictures(4)
    assert torch.equal(backbone(images).view(2, 3, 4, 4), images)
    grey = torch.full((1, 3, 4, 4), 51, dtype=torch.uint8)
    torch.testing.assert_close(normalize(grey, backbone.preprocess), torch.full((1, 3, 4, 4), 0.2))
    with pytest.raises(DataError, match="built for 4x4 images"):
        backbone(pictures(5))

    class Renamed(type(build_backbone("pixels", {"image_size": 8}))):  # type: ignore[misc]
        pass

    assert Renamed(image_size=8).fingerprint() != build_backbone("pixels", {"image_size": 8}).fingerprint()


def test_conv4_and_resnet18_have_the_published_size_and_names() -> None:
    assert sum(p.numel() for p in build_backbone("conv4").parameters()) == 113_088
    backbone = build_backbone("resnet18", {"image_size": 224})
    assert sum(p.numel() for p in backbone.parameters()) == 11_176_512  # torchvision's 11,689,512 without fc
    shapes = {name: tuple(w.shape) for name, w in backbone.state_dict().items()}
    assert shapes["conv1.weight"] == (64, 3, 7, 7)
    assert shapes["layer2.0.downsample.0.weight"] == (128, 64, 1, 1)
    assert shapes["layer4.1.bn2.running_var"] == (512,)
    assert len(shapes) == 120
    assert not any(name.startswith(("layer1.0.downsample", "fc")) for name in shapes)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 1, 32, 32), (1, 3, 8, 32)])
def test_images_of_a_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    backbone = build_backbone("conv4", {"width": 4, "image_size": 32})
    with pytest.raises(DataError, match=r"needs images \(B, 3, H, W\) of at least 16 pixels"):
        backbone(torch.zeros(shape))


PACKED = {"stages": [3, 4]}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("resnet13", {}, "resnet18"),
    ("resnet12", {"widht": 3}, "'widht'; it has width, image_size"),
    ("pixels", {}, "'image_size'"),
    ("conv4", {"width": 0}, "at least 1 channel, got 0"),
    ("resnet18", {"stem": "5x5"}, "one of 7x7, 3x3, got '5x5'"),
    ("resnet12", {"width": (64, 160, 320, 6.5)}, "one positive integer or four"),
    ("resnet12", {"image_size": 12}, "at least 16 pixels, got 12"),
    ("resnet12", {"image_size": 32, "dropblock_size": 5}, "at most 2, got 5; 32-pixel images give 2x2 maps"),
    ("resnet12", {"dropblock_size": 0}, "at least 1 pixel of the map, got 0"),
    ("resnet12", {"drop_rate": 1.5}, "drop_rate must be in [0, 1), got 1.5"),
    ("resnet12", PACKED | {"image_size": 60}, "60 pixels give 7x7 and 3x3"),
    ("resnet12", {"stages": [2, 4]}, "[4] or [3, 4], got [2, 4]"),
]


@pytest.mark.parametrize(("name", "settings", "words"), REFUSED)
def test_wrong_settings_are_named(name: str, settings: dict[str, Any], words: str) -> None:
    with refused("no-plugin" if name == "resnet13" else "recipe", words):
        build_backbone(name, settings)


@pytest.mark.parametrize("sides", [(1, 1), (2, 2), (3, 3), (4, 4), (5, 7), (8, 6)])
def test_a_convolution_in_fewer_steps_is_the_convolution(sides: tuple[int, int]) -> None:
    torch.manual_seed(0)
    layer = Conv3x3(5, 7).double()
    x = torch.randn(3, 5, *sides, dtype=torch.double, requires_grad=True)
    ours, plain = layer(x), F.conv2d(x, layer.weight, padding=1)
    torch.testing.assert_close(ours, plain)
    weight = torch.randn_like(plain)
    for a, b in zip(*(torch.autograd.grad(y, [x, layer.weight], weight) for y in (ours, plain)), strict=True):
        torch.testing.assert_close(a, b)
