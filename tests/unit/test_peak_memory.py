"""How much of a forward pass is alive at once."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from glocal.research.backbones.resnet12 import ResidualBlock


class LiveBytes(TorchDispatchMode):
    """Bytes of the tensors that were made within and are still referred to, and the most there were."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {id(t.untyped_storage()) for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        for made in tree_leaves(out):
            storage = made.untyped_storage() if isinstance(made, torch.Tensor) else None
            if storage is not None and id(storage) not in self._seen and id(storage) not in given:
                size, key = storage.nbytes(), id(storage)
                self._seen.add(key)
                self.now += size
                self.most = max(self.most, self.now)
                weakref.finalize(storage, self._gone, key, size)
        return out

    def _gone(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size


def test_a_block_holds_three_maps_at_once_in_evaluation() -> None:
    block = ResidualBlock(8, 8, torch.nn.Identity()).eval()
    image = torch.randn(2, 8, 32, 32)
    with torch.no_grad(), LiveBytes() as live:
        block(image)
    one = image.numel() * image.element_size()
    assert live.most <= 3 * one, "the sum, the shortcut and what it is normalised from; nothing from before them"
