r"""Jeong et al. 2021, SnaTCHer-F: how far do the adapted prototypes move when a query takes the place of one?

A known query is so like its class that swapping it in changes little; an unknown one disturbs the whole set.
With FEAT's attention T and the nearest class :math:`c = \arg\max_n s_n(q)`:

.. math:: \mathrm{open}(q) = \frac1{64} \sum_n \lVert T(P^{c \leftarrow q})_n - T(P)_n \rVert^2

Logits, loss and settings are FEAT's; nothing is trained for the open score.

Differs from the paper: nothing in the numbers.  The published program adapts one set of prototypes per query; here the
queries are taken together, and the linear layers see each vector once (``SetAttention.swapped``).

>>> import torch
>>> from glocal.research.types import Views
>>> _ = torch.manual_seed(0)
>>> method = SnaTCHerF(4, temperature=1.0).eval()
>>> state = method.enroll(Views(torch.eye(4)[:2]), torch.eye(2))
>>> own, far = method.score(state, Views(torch.stack([state.raw[0], 5 * torch.eye(4)[3]]))).open_score.tolist()
>>> round(own, 6), far > 0.01
(0.0, True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from glocal.research.methods.base import Comparison, MethodCard, Paper
from glocal.research.methods.feat import FEAT
from glocal.research.ops.similarity import class_mean, in_turns
from glocal.research.types import Views

PAPER = Paper("Jeong et al.", "Few-shot Open-set Recognition by Transformation Consistency", "CVPR", 2021, "2103.01537")
SCALE = 64.0  # published constant; the order of queries does not depend on it
SWAPPED_FLOATS = 2**22  # numbers of adapted prototypes held at once: 16 MiB in float32
SWAPPED_QUERIES = 512  # and queries, whose affinities to each other come along unused

Swapped = Callable[[Tensor, Tensor, Tensor], Tensor]  # raw (N, D), query (Q, D), at (Q,) -> (Q, N, D)


class SnaTCHerF(FEAT):
    card = MethodCard("SnaTCHer-F", PAPER, ("snatcher-f",), learns="FEAT's attention, and nothing for the open score")

    class State(NamedTuple):
        proto: Tensor  # (N, D) adapted class means
        raw: Tensor  # (N, D) class means

    own_scores = ("snatcher",)
    published_score = "snatcher"

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        raw = class_mean(support.vec, one_hot)
        return self.State(self.attend(raw), raw)

    def compare(self, state: Any, query: Views) -> Comparison:
        logits = super().compare(state, query).logits
        return Comparison(logits, {"snatcher": lambda: movement(self.attend.swapped, state, query.vec, logits)})


def movement(swapped: Swapped, state: Any, query: Tensor, logits: Tensor) -> Tensor:
    """Squared way that ``state.proto`` goes when each query replaces its nearest row of ``state.raw``.

    query (Q, D), logits (Q, N) -> (Q,).  Queries are taken in turns, so memory does not grow with their number.
    """

    def moved(some: Tensor, at: Tensor) -> Tensor:
        way: Tensor = swapped(state.raw, some, at) - state.proto
        return way.square().sum(dim=(-2, -1)) / SCALE

    def step() -> int:
        return min(SWAPPED_QUERIES, SWAPPED_FLOATS // int(state.raw.numel()))

    return in_turns(moved, query, logits.argmax(dim=-1), step=step)
