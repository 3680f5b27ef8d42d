r"""Deng et al. 2022, RFDNet: classes and queries are displaced along what the base classes know, class by class.

Embeddings have length one, :math:`\hat x = x / \lVert x \rVert`, and :math:`p_n` is the class mean of :math:`\hat x`.
What the base classes b say about a vector, and how much class n stands out against the other classes of the task:

.. math:: D(z) = \sum_b \mathrm{softmax}_b(s_{att} \cos(z, k_b)) \frac{w_b}{\lVert w_b \rVert}, \qquad
          g_n = F_2\Bigl(F_1\Bigl(\frac1{N-1} \sum_{m \ne n} |p_n - p_m|\Bigr)\Bigr)

.. math:: \tilde p_n = p_n + g_n \odot D(p_n), \quad \tilde q_n = \hat q + g_n \odot D(\hat q), \quad
          s_n(q) = s\,(b + \cos(\tilde q_n, \tilde p_n))

Centres :math:`w_b` start at the base-class means, keys :math:`k_b` at N(0, √(2/D)), both scales at 1, F1 and F2 near
the identity; all are learned.  While training, the task's own classes are hidden from the base memory.
Loss: cross-entropy of softmax(s) on known queries + 0.5 (A + B).  A is the mean of relu(2 - s_y) over known queries,
B the mean of relu(s_n + 2) over unknown queries and classes.
Open score: -max_n s_n, ``distance`` in ``OPEN_SCORES``; any other of them by name.

Published training: SGD .1, momentum .9, weight decay 1e-4, 12,000 tasks, x.1 every 2,000, features frozen.

As released: b starts at 0; F1 and F2 are linear with a bias, which starts at 0, and with weights of the identity plus
N(0, 0.001).  Heads from before had no bias; they load with one of 0.

Differs from the paper: nothing in the numbers.  Queries are never displaced one class at a time: the cosines come from
four matrix products.

>>> import torch
>>> from glocal.research.types import BaseClasses, Views
>>> _ = torch.manual_seed(0)
>>> method = RFDNet(4)
>>> method.set_base(BaseClasses(("a", "b"), torch.eye(4)[:2], torch.eye(4)[:2], torch.ones(4)))
>>> state = method.enroll(Views(torch.eye(4)[:2]), torch.eye(2))
>>> logits, open_score = method.score(state, Views(torch.eye(4)[[0, 3]]))
>>> logits[0].argmax().item(), (open_score[1] > open_score[0]).item()
(0, True)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glocal.common.errors import RecipeError
from glocal.research.methods.base import (
    Comparison,
    Method,
    MethodCard,
    Paper,
    check_positive,
    check_weight,
    known_cross_entropy,
)
from glocal.research.methods.blocks import BaseRows
from glocal.research.ops.similarity import class_mean, cosine, pool
from glocal.research.types import BaseClasses, Episode, Views

NOISE = 0.001  # of F1 and F2 around the identity
SHORTEST = 1e-12  # squared length below which a displaced query has no direction


class RFDNet(Method):
    card = MethodCard(
        "RFDNet",
        Paper("Deng et al.", "Learning Relative Feature Displacement for Few-Shot Open-Set Recognition", "TMM", 2022),
        ("rfdnet",),
        learns="centres and keys of the base classes, two linear layers, two scales and a bias",
    )

    class State(NamedTuple):
        proto: Tensor  # (N, D) displaced class means
        gate: Tensor  # (N, D) g_n
        shown: Tensor  # (B,) bool: the base classes that take part

    needs_base = True
    pooled = True
    min_way = 2

    def __init__(self, dim: int, *, margin: float = 2.0, margin_weight: float = 0.5, open_score: str = "distance"):
        super().__init__()
        self.centre, self.key = BaseRows(dim, learned=True), BaseRows(dim, learned=True)
        self.relate = nn.Sequential(near_identity(dim), near_identity(dim))
        self.attention_scale, self.scale = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))
        self.bias = nn.Parameter(torch.zeros(()))
        self.margin = check_positive("margin", margin)
        self.margin_weight = check_weight("margin_weight", margin_weight)
        self.choose_score(open_score)

    def set_base(self, base: BaseClasses) -> None:
        b, d = base.centre.shape
        self.centre.fill(base.centre)
        self.key.fill(math.sqrt(2 / d) * torch.randn(b, d))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for i in range(len(self.relate)):  # a linear map without a bias is one with a bias of 0
            weight = state_dict.get(f"{prefix}relate.{i}.weight")
            if weight is not None and f"{prefix}relate.{i}.bias" not in state_dict:
                state_dict[f"{prefix}relate.{i}.bias"] = weight.new_zeros(len(weight))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def embed(self, maps: Tensor) -> Views:
        return Views(F.normalize(pool(maps), dim=-1))

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        raw = class_mean(support.vec, one_hot)  # (N, D)
        n_way = raw.shape[0]
        if n_way < self.min_way:
            raise RecipeError(
                f"rfdnet needs tasks of at least {self.min_way} classes, because it measures how a class differs from "
                f"the others, got {n_way}; enroll another class or choose another method"
            )
        shown = self.centre.shown(drawn if self.training else ())
        apart = (raw[:, None] - raw).abs().sum(dim=1) / (n_way - 1)  # (N, D); a class is 0 apart from itself
        gate = self.relate(apart)
        return self.State(raw + gate * self.recall(raw, shown), gate, shown)

    def compare(self, state: Any, query: Views) -> Comparison:
        recalled = self.recall(query.vec, state.shown)  # (Q, D)
        dot = query.vec @ state.proto.mT + recalled @ (state.gate * state.proto).mT  # (Q, N) q~_n · p~_n
        squared = (  # (Q, N) ||q~_n||²
            query.vec.square().sum(dim=-1, keepdim=True)
            + 2 * (query.vec * recalled) @ state.gate.mT
            + recalled.square() @ state.gate.square().mT
        )
        length = squared.clamp_min(SHORTEST).sqrt() * state.proto.square().sum(dim=-1).clamp_min(SHORTEST).sqrt()
        return Comparison(self.scale * (self.bias + dot / length))

    def recall(self, z: Tensor, shown: Tensor) -> Tensor:
        """D(z) by the base classes that are shown: (B', D), (B,) -> (B', D)."""
        affinity = self.attention_scale * cosine(z, self.key())  # (B', B)
        return affinity.masked_fill(~shown, -math.inf).softmax(dim=-1) @ F.normalize(self.centre(), dim=-1)

    def loss(self, episode: Episode) -> dict[str, Tensor]:
        logits, known = self(episode).logits, episode.known
        own = logits[known].gather(1, episode.query_label[known, None])  # (known queries, 1)
        return {
            "closed": known_cross_entropy(logits, episode.query_label),
            "known": self.margin_weight * mean_excess(self.margin - own),
            "unknown": self.margin_weight * mean_excess(logits[~known] + self.margin),
        }


def near_identity(dim: int) -> nn.Linear:
    layer = nn.Linear(dim, dim)
    layer.weight.data = torch.eye(dim) + NOISE * torch.randn(dim, dim)
    nn.init.zeros_(layer.bias)
    return layer


def mean_excess(x: Tensor) -> Tensor:
    """Mean of relu(x); 0, and not NaN, when there is nothing to average."""
    return x.relu().sum() / max(1, x.numel())
