r"""A wide ResNet-12 that starts from what a narrow one has learned (Chen et al. 2016, Net2Net).

Channel j of the wide network is a copy of channel :math:`g(j) = j \bmod n` of the narrow one.  Whoever reads a channel
reads its copies instead, each with a share of the old weight; shares are drawn anew for every reader and sum to one:

.. math:: W'_{oj} = a_{oj} W_{g(o)\,g(j)}, \qquad \sum_{j:\, g(j) = i} a_{oj} = 1

So the wide network begins with the function of the narrow one.  The unequal shares, and a little noise, let the copies
part: their gradients differ from the first step on.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.common.errors import RecipeError
from glocal.research.backbones.resnet12 import ResNet12

SHARES = (0.5, 1.5)  # drawn between these, then divided by their sum


def widen(narrow: ResNet12, wide: ResNet12, generator: torch.Generator, *, noise: float = 0.0) -> None:
    """Give ``wide`` the function of ``narrow``; ``noise`` is relative to the size of each convolution's weights."""
    if any(w < n for n, w in zip(narrow.stage_channels, wide.stage_channels, strict=True)):
        raise RecipeError(
            f"a network can be widened to at least its own channels {narrow.stage_channels}, got {wide.stage_channels}",
            code="narrower",
        )
    there, target = narrow.state_dict(), wide.state_dict()
    for name, new in target.items():
        old = there[name]
        if old.ndim == 4:
            new.copy_(shared(old, new.shape[0], new.shape[1], generator))
            new.add_(torch.randn(new.shape, generator=generator), alpha=noise * float(new.std()))
        elif old.ndim == 1:
            new.copy_(old[torch.arange(len(new)) % len(old)])
        else:  # a counter
            new.copy_(old)


def shared(weight: Tensor, outside: int, inside: int, generator: torch.Generator) -> Tensor:
    """(O, I, ...) -> (outside, inside, ...): rows are copied, columns are copied and share the old weight."""
    old = weight.shape[1]
    source = torch.arange(inside) % old
    share = torch.empty(outside, inside).uniform_(*SHARES, generator=generator)
    together = torch.zeros(outside, old).index_add_(1, source, share)
    share = share / together[:, source]
    rows = weight[torch.arange(outside) % len(weight)][:, source]
    return rows * share.reshape(outside, inside, *[1] * (weight.ndim - 2))
