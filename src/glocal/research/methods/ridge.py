r"""The recognizer's own head among the methods: its vectors and cells by torch, its decisions by numpy.

A photo has a vector e of length 1: half of it the pooled features, half their square roots.  ``fit`` whitens it by how
photos of one class differ.  It also has cells :math:`c_u` of a coarse grid over earlier stages of the encoder, or over
the last one if there is no other.  ``glocal.recognizer.heads.ridge`` has the formulas of what follows.

Differs from the paper: both similarities have other formulas.  Nothing is trained; ``fit`` takes a covariance of
labelled vectors.  Both energies name classes, not that of the whole photo alone.

>>> import torch
>>> method = KernelRidge(3, patch_channels=[1])
>>> views = method.embed(torch.tensor([[1.0, 0.0, 1.0], [0.0, 2.0, 1.0]])[:, :, None, None])
>>> state = method.enroll(views, torch.eye(2))
>>> method.compare(state, views).logits.argmax(dim=1)
tensor([0, 1])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glocal.common.errors import RecipeError
from glocal.recognizer.features import Features
from glocal.recognizer.heads.ridge import Ridge, RidgeState
from glocal.research.methods.base import Comparison, Method, MethodCard, check_positive, check_weight
from glocal.research.ops.similarity import cells, pool
from glocal.research.types import UNKNOWN, Views

TINY = 1e-12  # a square root has no slope at 0
LATER = 0.5  # weight of the cells of a stage that is not the earliest


class KernelRidge(Method):
    card = MethodCard("Ridge")
    own_scores = Ridge.score_names
    takes_unknown = True

    class State(NamedTuple):
        proto: Tensor  # (N, D) class means of comparable lengths
        vec: Tensor  # (S, D) of every support photo; of many photos of none, here and below
        cells: Tensor  # (S, P, C)
        alpha: Tensor  # (S, N + 1) weights of the regression, last those of the known unknowns

    directions: Tensor
    gains: Tensor

    def __init__(
        self,
        dim: int,
        *,
        patch_channels: Sequence[int] = (),
        side: int = 4,
        rank: int = 256,
        ridge: float = 0.1,
        weight: float = 0.5,
        temperature: float = 0.05,
        open_score: str = "E",
    ):
        super().__init__()
        self.patch_channels = tuple(patch_channels)
        self.width = dim - sum(self.patch_channels)
        if self.width < 1 or min(self.patch_channels, default=1) < 1:
            raise RecipeError(
                f"patch_channels must be those of earlier stages, behind the others of the {dim} of a map, got "
                f"{list(patch_channels)}; a backbone with early = true has them in its patch_channels"
            )
        check_positive("ridge", ridge)
        check_positive("temperature", temperature)
        self.side, self.head = side, Ridge(ridge=ridge, weight=check_weight("weight", weight), temperature=temperature)
        self.register_buffer("directions", torch.zeros(self.width, min(rank, self.width)))
        self.register_buffer("gains", torch.zeros(min(rank, self.width)))
        self.choose_score(open_score)

    def fit(self, covariance: Tensor, *, shrink: float = 0.5) -> None:
        """Whiten by the covariance (D, D) of square-root vectors within classes.

        It is drawn ``shrink`` of the way to its mean variance.  Beyond the ``rank`` directions of most variance all
        directions count alike."""
        variance, vectors = torch.linalg.eigh(covariance.double())
        drawn = (1 - shrink) * variance / variance.mean() + shrink
        rank = len(self.gains)
        rest = drawn[:-rank].mean() if rank < len(drawn) else drawn.min()
        self.directions.copy_(vectors[:, -rank:])
        self.gains.copy_(1 - (drawn[-rank:] / rest).rsqrt())

    def roots(self, pooled: Tensor) -> Tensor:
        """Square roots of pooled features (B, D), of length 1: what ``fit`` wants the covariance of."""
        return F.normalize(pooled.clamp_min(TINY).sqrt(), dim=-1)

    def embed(self, maps: Tensor) -> Views:
        head, *early = torch.split(maps, [self.width, *self.patch_channels], dim=1)
        return Views(self.vectors(pool(head)), self.patches(early or [head]))

    def vectors(self, pooled: Tensor) -> Tensor:
        """Pooled features (B, D) -> (B, 2 D) of length 1."""
        roots = self.roots(pooled)
        white = roots - (roots @ self.directions * self.gains) @ self.directions.mT
        return torch.cat([F.normalize(pooled, dim=-1), F.normalize(white, dim=-1)], dim=-1) * math.sqrt(0.5)

    def patches(self, early: Sequence[Tensor]) -> Tensor:
        """Maps of stages, the earliest last, each (B, C, H, W) -> cells (B, all C, side, side)."""
        *later, earliest = (F.normalize(cells(each, min(self.side, *each.shape[-2:])), dim=1) for each in early)
        return torch.cat([*(each * math.sqrt(LATER) for each in later), earliest], dim=1)

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        label = torch.where(one_hot.any(dim=1), one_hot.argmax(dim=1), UNKNOWN)
        state = self.head.enroll(_features(support), label.cpu().numpy())
        kept = state.cells[0] if state.cells else state.vec[:, None]
        numbers = (state.proto, state.vec, kept, state.alpha)
        return self.State(*(torch.from_numpy(each).to(support.vec.device) for each in numbers))

    def compare(self, state: Any, query: Views) -> Comparison:
        proto, vec, kept, alpha = (each.cpu().numpy() for each in state)
        scores = self.head.compare(RidgeState(proto, vec, (kept,), alpha), _features(query))
        logits, e_class, e_patch = (
            torch.from_numpy(each).to(query.vec.device) for each in (scores.logits, *scores.parts.values())
        )
        return Comparison(logits, {"E": lambda: e_class + e_patch, "E_c": lambda: e_class, "E_f": lambda: e_patch})


def _features(views: Views) -> Features:
    assert views.local is not None
    return Features(views.vec.detach().cpu().numpy(), (views.local.detach().cpu().numpy(),))
