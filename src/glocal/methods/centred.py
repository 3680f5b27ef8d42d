r"""Feature centring for any method: the mean of the base pictures is taken away, what is left gets unit length.

.. math:: f'_u = \frac{f_u - m}{\lVert \bar f - m \rVert}, \qquad \bar f = \frac1P \sum_u f_u

for every pixel u of a map f with base mean m: the pooled vector then has length 1, and maps keep their relief.
``centre = true`` in a recipe's ``[method]`` puts it before the method of that name (``build_method``).

>>> import torch
>>> from glocal.methods.protonet import ProtoNet
>>> from glocal.types import BaseClasses
>>> method, rows = Centred(ProtoNet(2), 2), torch.tensor([[1.0, 0.0], [3.0, 0.0]])
>>> method.set_base(BaseClasses(("a", "b"), rows, rows, rows.mean(dim=0)))
>>> method.embed(torch.tensor([[2.0, 5.0]]).view(1, 2, 1, 1)).vec
tensor([[0., 1.]])
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glocal.methods.base import Comparison, Method
from glocal.ops.similarity import pool
from glocal.types import BaseClasses, Episode, Output, Views
from glocal_runtime.errors import RecipeError


class Centring(nn.Module):
    """Maps (B, C, H, W) -> maps whose pooled vectors have length 1 around the base mean."""

    mean: Tensor

    def __init__(self, dim: int):
        super().__init__()
        self.register_buffer("mean", torch.full((dim,), math.nan))  # until set_base() or a checkpoint brings it

    def fill(self, mean: Tensor) -> None:
        self.mean.copy_(mean)

    def forward(self, maps: Tensor) -> Tensor:
        if self.mean[0].isnan():
            raise RecipeError(
                "centring needs the mean of the base pictures and has not met them; train it, then use it"
            )
        moved = maps - self.mean[:, None, None]
        length: Tensor = pool(moved).norm(dim=-1).clamp_min(1e-12)
        return moved / length[:, None, None, None]

    def rows(self, rows: Tensor) -> Tensor:
        """The same for vectors: (B, C) -> (B, C)."""
        return F.normalize(rows - self.mean.to(rows), dim=-1)


class Centred(Method):
    """``inner``, given centred maps; in everything else it is ``inner``."""

    needs_base = True

    def __init__(self, inner: Method, dim: int):
        super().__init__()
        self.inner, self.centring = inner, Centring(dim)
        self.State = inner.State
        for name in ("needs_mirror", "transductive", "min_way", "early_channels", "score_names", "open_score"):
            setattr(self, name, getattr(inner, name))

    def choose_score(self, name: str) -> None:
        self.inner.choose_score(name)
        self.open_score = self.inner.open_score

    def set_base(self, base: BaseClasses) -> None:
        """``inner`` meets base classes that lie where its maps will: around 0, with unit length."""
        self.centring.fill(base.mean)
        self.inner.set_base(
            BaseClasses(
                base.names,
                weight=self.centring.rows(base.weight),
                centre=self.centring.rows(base.centre),
                mean=torch.zeros_like(base.mean),
            )
        )

    def embed(self, maps: Tensor) -> Views:
        return self.inner.embed(self.centring(maps))

    def enroll(self, support: Views, label: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        return self.inner.enroll(support, label, drawn)

    def score(self, state: Any, query: Views) -> Output:
        return self.inner.score(state, query)

    def compare(self, state: Any, query: Views) -> Comparison:
        return self.inner.compare(state, query)

    def scores(self, state: Any, query: Views) -> dict[str, Tensor]:
        return self.inner.scores(state, query)

    def loss(self, episode: Episode) -> dict[str, Tensor]:
        mirror = None if episode.mirror_support is None else self.centring(episode.mirror_support)
        return self.inner.loss(
            replace(
                episode,
                support=self.centring(episode.support),
                query=self.centring(episode.query),
                mirror_support=mirror,
            )
        )
