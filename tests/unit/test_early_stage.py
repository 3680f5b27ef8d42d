"""The stage before the last, packed behind the last map: from the backbone that hands it out to the method."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from glocal.research.backbones import Backbone, build_backbone
from glocal.research.methods.peeler import SecondLastStage
from glocal.research.ops.packing import pack, unpack
from refusal import refused

# name, settings, side of the pictures, (channels, side) of the early and of the last map
CASES: list[tuple[str, dict[str, Any], int, tuple[int, int], tuple[int, int]]] = [
    ("resnet12", {"width": 2}, 84, (10, 10), (20, 5)),
    ("resnet12", {"width": 2}, 32, (10, 4), (20, 2)),
    ("resnet12", {"width": 2}, 16, (10, 2), (20, 1)),
    ("resnet18", {}, 32, (256, 8), (512, 4)),
    ("resnet18", {"stem": "7x7"}, 84, (256, 6), (512, 3)),
]


def both(name: str, **settings: Any) -> tuple[Backbone, Backbone]:
    """With and without the early map, of the same weights."""
    plain = build_backbone(name, {key: value for key, value in settings.items() if key != "stages"}).eval()
    packed = build_backbone(name, {"stages": [3, 4]} | settings).eval()
    packed.load_state_dict(plain.state_dict())
    return plain, packed


def pictures(side: int, count: int = 2) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("name", "settings", "side", "early", "last"), CASES)
def test_unpacking_gives_the_maps_of_both_stages(
    name: str, settings: dict[str, Any], side: int, early: tuple[int, int], last: tuple[int, int]
) -> None:
    plain, packed = both(name, image_size=side, **settings)
    with torch.inference_mode():
        maps, (expected_early, expected_last) = packed(pictures(side)), last_two(plain, pictures(side))
    found_last, found_early = unpack(maps, packed.early_channels)
    assert found_early.shape == (2, early[0], early[1], early[1])
    assert found_last.shape == (2, last[0], last[1], last[1])
    assert torch.equal(found_early, expected_early)
    assert torch.equal(found_last, expected_last)
    assert maps.shape[1] == packed.channels == last[0] + 4 * early[0]
    assert (plain.early_channels, packed.early_channels) == (0, early[0])


def last_two(backbone: Backbone, images: Tensor) -> list[Tensor]:
    return list(backbone.stages_of(images))[-2:]


def test_an_early_map_that_lacks_a_row_gives_the_same_after_its_stride() -> None:
    """84 pixels make 21x21 and 11x11 of ResNet-18: the row that is added is the one a convolution pads anyway."""
    plain, packed = both("resnet18", image_size=20)  # 5x5 and 3x3
    with torch.inference_mode():
        early, last = last_two(plain, pictures(20))
        maps = packed(pictures(20))
        found_last, found_early = unpack(maps, packed.early_channels)
        assert (early.shape[-1], found_early.shape[-1]) == (5, 6)
        assert torch.equal(found_last, last)
        stage = SecondLastStage(packed.early_channels, 8).eval()
        torch.testing.assert_close(stage(found_early), stage(early))
    build_backbone("resnet18", {"image_size": 84, "stages": [3, 4]})


def test_maps_that_do_not_fit_are_refused() -> None:
    with refused("data", "got 6x4 and 2x2"):
        pack(torch.zeros(1, 3, 2, 2), torch.zeros(1, 1, 6, 4))
