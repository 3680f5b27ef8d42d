"""PEELER's precision network: from σ maps of the support, how much every pixel and channel of a class counts."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn


class Precision(nn.Module):
    """A_i of each support image from all of them: (S, inside, H, W) -> (S, dim, H, W), not negative, 1 at the start.

    ``reduce``: final maps come in, and a 1x1 convolution makes σ of them; otherwise σ itself, of ``width`` channels.
    """

    def __init__(self, dim: int, width: int, *, reduce: bool = True):
        super().__init__()
        self.sigma = nn.Sequential()  # the identity, without an entry in the state dict
        if reduce:
            self.sigma = nn.Sequential(nn.Conv2d(dim, width, 1, bias=False), nn.GroupNorm(1, width), nn.ReLU())
        self.l0 = nn.Sequential(BasicBlock(width, width), BasicBlock(width, width))
        self.l1 = nn.Sequential(BasicBlock(2 * width, width), BasicBlock(width, width))
        self.expand = nn.Conv2d(width, dim, 1, bias=False)
        nn.init.zeros_(self.expand.weight)

    def forward(self, maps: Tensor) -> Tensor:
        sigma = self.sigma(maps)
        task = self.l0(sigma).mean(dim=0, keepdim=True).expand_as(sigma)  # g
        precision: Tensor = (1 + self.expand(self.l1(torch.cat([sigma, task], dim=1)))).relu()
        return precision


class SecondLastStage(nn.Sequential):
    """σ from the maps of the stage before the last: (B, inside, 2H, 2W) -> (B, width, H, W), as ResNet-18's stage 4.

    It has batch norm, so it runs in a method's ``embed``.
    """

    def __init__(self, inside: int, width: int):
        super().__init__(
            BasicBlock(inside, width, stride=2, batch_norm=True), BasicBlock(width, width, batch_norm=True)
        )


class BasicBlock(nn.Module):
    """ReLU(x + norm(conv(ReLU(norm(conv(x)))))), 3x3; a 1x1 convolution on x when its shape changes.

    Group norm, for what runs once per task; with ``batch_norm`` as in ResNet-18, where x is normed too if convolved.
    """

    def __init__(self, inside: int, outside: int, *, stride: int = 1, batch_norm: bool = False):
        super().__init__()
        norm = nn.BatchNorm2d if batch_norm else partial(nn.GroupNorm, 1)
        self.conv1, self.norm1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False), norm(outside)
        self.conv2, self.norm2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False), norm(outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inside != outside:
            self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False)
            if batch_norm:
                self.shortcut = nn.Sequential(self.shortcut, norm(outside))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        out: Tensor = (self.shortcut(x) + y).relu()
        return out
