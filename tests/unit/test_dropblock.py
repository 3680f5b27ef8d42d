from __future__ import annotations

import pytest
import torch

from glocal.backbones.resnet12 import DropBlock, drop_mask
from glocal_runtime.errors import RecipeError
from reference.dropblock import drop_blocks


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


@pytest.mark.parametrize(("side", "block"), [(10, 5), (8, 4), (4, 2), (5, 5)])
def test_drops_the_promised_share(side: int, block: int) -> None:
    torch.manual_seed(0)
    mask = drop_mask(torch.empty(64, 64, side, side), block, torch.tensor(0.9))
    share = 1 - float(mask.mean())
    assert 0.08 < share < 0.105  # overlapping blocks lose a little of the 0.1


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


def test_a_map_dropped_whole_is_zero_not_nan() -> None:
    drop, maps = ramped(2, 0.99), torch.ones(1, 1, 2, 2, requires_grad=True)
    torch.manual_seed(0)
    out = drop(maps)
    out.sum().backward()
    assert torch.equal(out, torch.zeros(1, 1, 2, 2))
    assert maps.grad is not None
    assert torch.equal(maps.grad, torch.zeros(1, 1, 2, 2))


def test_half_precision_does_not_overflow() -> None:
    torch.manual_seed(0)
    out = ramped(2)(torch.ones(64, 64, 8, 8, dtype=torch.float16))  # 262,144 cells, above the largest float16
    assert out.dtype == torch.float16
    assert float(out.max()) == pytest.approx(1.1, abs=0.03)


def test_rate_zero_is_the_identity_on_any_map() -> None:
    maps = torch.randn(2, 3, 3, 3)
    assert torch.equal(DropBlock(block_size=4, drop_rate=0.0).train()(maps), maps)


def test_block_larger_than_the_map_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"at most 2 \(the side of the 2x2 map it acts on\), got 5"):
        DropBlock(block_size=5).train()(torch.ones(1, 1, 2, 2))


def test_a_short_run_shortens_the_ramp_and_a_long_one_does_not():
    from glocal.backbones import build_backbone
    from glocal.backbones.resnet12 import shorten_ramps

    net = build_backbone("resnet12", width=(4, 4, 8, 8), image_size=32, dropblock_steps=900)
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
