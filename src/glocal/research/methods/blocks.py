"""Parts that several methods share, and centring, which any method can have.  Weights keep their published names."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glocal.common.errors import RecipeError
from glocal.research.methods.base import Comparison, Method
from glocal.research.ops.batch_norm import BatchNorm2d
from glocal.research.ops.similarity import pool
from glocal.research.types import BaseClasses, Episode, Views


class SetAttention(nn.Module):
    r"""Each row of a set looks at all rows: LayerNorm(x + Dropout(W_o softmax(W_q x (W_k x)ᵀ / √D) W_v x)).

    One head over (..., N, D), equivariant to the order of the N rows.  GEL eqs. 2 and 3 with the output layer,
    residual and LayerNorm of FEAT and SnaTCHer, which eq. 3 leaves out.
    ``gentle`` leaves LayerNorm out and starts with W_o = 0: it begins as the identity and learns to depart from it.
    ``width``: of queries, keys and values, D when None; fewer make a small head of a wide embedding.
    """

    def __init__(
        self,
        dim: int,
        *,
        width: int | None = None,
        dropout: float = 0.5,
        attention_dropout: float = 0.1,
        gentle: bool = False,
    ):
        super().__init__()
        width = dim if width is None else width
        self.w_qs, self.w_ks, self.w_vs = (nn.Linear(dim, width, bias=False) for _ in range(3))
        for layer in (self.w_qs, self.w_ks, self.w_vs):
            nn.init.normal_(layer.weight, std=math.sqrt(2 / (dim + width)))
        self.fc = nn.Linear(width, dim)
        nn.init.xavier_normal_(self.fc.weight)
        if gentle:
            nn.init.zeros_(self.fc.weight)
            nn.init.zeros_(self.fc.bias)
        self.layer_norm = nn.Identity() if gentle else nn.LayerNorm(dim)
        self.dropout, self.attention_dropout = nn.Dropout(dropout), nn.Dropout(attention_dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (..., N, D) -> (..., N, D); mask (..., N, N) bool: row i may look at row j."""
        affinity = self.w_qs(x) @ self.w_ks(x).mT  # (..., N, N)
        if mask is not None:
            affinity = affinity.masked_fill(~mask, -math.inf)
        return self._finish(x, self.fc(self._attention(affinity) @ self.w_vs(x)))

    def swapped(self, x: Tensor, other: Tensor, at: Tensor) -> Tensor:
        """``self(x with row at[i] replaced by other[i])`` for every i: x (N, D), other (Q, D), at (Q,) -> (Q, N, D).

        The sets share N - 1 of their rows, so the linear layers see N + Q rows and not N * Q.
        W_o is linear and goes onto the values before attention mixes them.
        """
        n, q = x.shape[0], other.shape[0]  # len() would fix them in an exported graph
        rows = torch.cat([x, other])  # (N + Q, D)
        own, new = torch.arange(n, device=x.device), torch.arange(n, n + q, device=x.device)
        member = torch.where(own == at[:, None], new[:, None], own)  # (Q, N) the rows that form set i
        affinity = self.w_qs(rows) @ self.w_ks(rows).mT  # (N + Q, N + Q)
        attention = self._attention(affinity[member[:, :, None], member[:, None, :]])  # (Q, N, N)
        value = self.w_vs(rows) @ self.fc.weight.mT
        return self._finish(rows[member], attention @ value[member] + self.fc.bias)

    def _attention(self, affinity: Tensor) -> Tensor:
        scale = math.sqrt(self.w_ks.out_features)
        attention: Tensor = self.attention_dropout((affinity / scale).softmax(dim=-1))
        return attention

    def _finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        out: Tensor = self.layer_norm(x + self.dropout(mixed))
        return out


class ScaleCalibration(nn.Sequential):
    """PReLU(BN(Conv1x1(f))), dim -> width (dim / 2 when None): brings local similarities to a scale (GEL eq. 8).

    ``gentle`` leaves BN out and starts as an orthogonal projection: it begins with nearly the cosines of the maps.  It
    has no bias: the gradient of a cosine at an empty pixel is all but infinite, and a bias is what would receive it.
    """

    def __init__(self, dim: int, width: int | None = None, *, gentle: bool = False):
        width = dim // 2 if width is None else width
        conv = nn.Conv2d(dim, width, 1, bias=not gentle)
        if gentle:
            nn.init.orthogonal_(conv.weight.data.view(width, dim))
        super().__init__(conv, nn.Identity() if gentle else BatchNorm2d(width), nn.PReLU(init=1.0 if gentle else 0.25))

    @property
    def conv(self) -> nn.Conv2d:
        first = self[0]
        assert isinstance(first, nn.Conv2d)
        return first


class Halving(nn.Sequential):
    """BN(Conv1x1 of stride 2 (f)): 11x11 -> 6x6, the maps that GEL compares on ResNet-18 at 84 pixels."""

    def __init__(self, dim: int):
        super().__init__(nn.Conv2d(dim, dim, 1, stride=2, bias=False), BatchNorm2d(dim))


class ResidualLinear(nn.Linear):
    """x + W x with W = 0 at the start: may turn the embedding a little, and begins as if it were not there."""

    def __init__(self, dim: int):
        super().__init__(dim, dim, bias=False)
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class BaseRows(nn.Module):
    """One vector per base class: (B, D), B unknown until ``fill`` or a checkpoint brings the rows."""

    def __init__(self, dim: int, *, learned: bool):
        super().__init__()
        self.rows = nn.Parameter(torch.empty(0, dim), requires_grad=learned)

    def fill(self, rows: Tensor) -> None:
        self.rows = nn.Parameter(rows.detach().clone().to(self.rows), requires_grad=self.rows.requires_grad)

    def forward(self, hidden: tuple[int, ...] = ()) -> Tensor:
        """(B', D) the rows without those of the classes ``hidden``."""
        shown = self.shown(hidden)
        return self.rows[shown] if hidden else self.rows

    def shown(self, hidden: tuple[int, ...] = ()) -> Tensor:
        """(B,) bool: all base classes but ``hidden``."""
        b = len(self.rows)
        if not b:
            raise RecipeError("this method remembers the base classes and has not met them; train it, then use it")
        if hidden and (max(hidden) >= b or len(set(hidden)) >= b):
            raise RecipeError(f"cannot hide the classes {sorted(set(hidden))} among {b} base classes and keep one")
        shown = torch.ones(b, dtype=torch.bool, device=self.rows.device)
        shown[list(hidden)] = False
        return shown

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        saved: Any = state_dict.get(f"{prefix}rows")
        # Rows that fit stay the parameter that an optimizer may already hold.
        new = saved is not None and saved.shape != self.rows.shape
        if new and saved.ndim == 2 and saved.shape[1] == self.rows.shape[1]:
            self.fill(torch.empty_like(saved))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class Centring(nn.Module):
    r"""The mean m of the base pictures is taken away, what is left gets unit length: (B, C, H, W) -> (B, C, H, W).

    .. math:: f'_u = \frac{f_u - m}{\lVert \bar f - m \rVert}, \qquad \bar f = \frac1P \sum_u f_u

    for every pixel u of a map f: the pooled vector then has length 1, and maps keep their relief.
    """

    mean: Tensor

    def __init__(self, dim: int):
        super().__init__()
        self.register_buffer("mean", torch.full((dim,), math.nan))  # until set_base() or a checkpoint brings it

    def fill(self, mean: Tensor) -> None:
        self.mean.copy_(mean)

    def forward(self, maps: Tensor) -> Tensor:
        if not torch.compiler.is_exporting() and self.mean[0].isnan():
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
    """``inner``, given centred maps; in everything else it is ``inner``: what ``centre = true`` in a recipe makes.

    >>> from glocal.research.methods.protonet import ProtoNet
    >>> method, rows = Centred(ProtoNet(2), 2), torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    >>> method.set_base(BaseClasses(("a", "b"), rows, rows, rows.mean(dim=0)))
    >>> method.embed(torch.tensor([[2.0, 5.0]]).view(1, 2, 1, 1)).vec
    tensor([[0., 1.]])
    """

    needs_base = True

    def __init__(self, inner: Method, dim: int):
        super().__init__()
        self.inner, self.centring = inner, Centring(dim)
        self.State = inner.State
        for name in ("needs_mirror", "transductive", "min_way", "early_channels", "score_names", "score_name"):
            setattr(self, name, getattr(inner, name))

    def choose_score(self, name: str) -> None:
        self.inner.choose_score(name)
        self.score_name = self.inner.score_name

    def set_base(self, base: BaseClasses) -> None:
        """``inner`` meets base classes that lie where its maps will: around 0, with unit length."""
        self.centring.fill(base.mean)
        self.inner.set_base(
            BaseClasses(
                base.names,
                weight=self.centring.rows(base.weight),
                centre=self.centring.rows(base.centre),
                mean=torch.zeros_like(base.mean),
                vec=None if base.vec is None else self.centring.rows(base.vec),
                label=base.label,
            )
        )

    def embed(self, maps: Tensor) -> Views:
        return self.inner.embed(self.centring(maps))

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        return self.inner.enroll(support, one_hot, drawn)

    def compare(self, state: Any, query: Views) -> Comparison:
        return self.inner.compare(state, query)

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
