r"""One learned open prototype: "none of these" is one more class, the same vector in every task.

Beside the class means :math:`p_1 .. p_N` of ProtoNet stands a learned u of D numbers:

.. math:: s_n(q) = \mathrm{sim}(q, p_n) / T, \qquad s_{N+1}(q) = \mathrm{sim}(q, u) / T

``calibrated`` learns two numbers more, a factor on T and an offset of s_{N+1}.  Without them, features around the
origin leave u no place that is equally far from all queries, so there is no threshold to learn.

Loss: cross-entropy of softmax over all N + 1, unknown queries belonging to the last; it needs unknown queries to learn.
Logits: the first N.  Open score: the probability of the last, ``p_open``; any of ``OPEN_SCORES`` by name.

Differs from the paper: there is none.  It is the smallest method that learns what unknown looks like, a reference for
those that generate such a prototype from the task (ATT).

>>> import torch
>>> from glocal.research.types import Views
>>> method = OpenPrototype(2, temperature=1.0)
>>> _ = method.open.data.copy_(torch.tensor([0.0, 3.0]))
>>> state = method.enroll(Views(torch.tensor([[0.0, 0.0], [4.0, 0.0]])), torch.eye(2))
>>> logits, open_score = method.score(state, Views(torch.tensor([[1.0, 0.0], [0.0, 3.0]])))
>>> logits.round().tolist(), [round(p, 4) for p in open_score.tolist()]
([[-1.0, -9.0], [-9.0, -25.0]], [0.0001, 0.9999])
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glocal.research.methods.base import (
    TEMPERATURES,
    Comparison,
    Method,
    MethodCard,
    check_choice,
    check_positive,
    known_cross_entropy,
)
from glocal.research.ops.similarity import SIMILARITIES, class_mean
from glocal.research.types import Episode, Views


class OpenPrototype(Method):
    card = MethodCard("Open prototype", learns="the open prototype, a factor and an offset")
    own_scores = ("p_open",)

    class State(NamedTuple):
        proto: Tensor  # (N, D) class means

    def __init__(
        self,
        dim: int,
        *,
        distance: str = "sq-euclidean",
        temperature: float | None = None,
        calibrated: bool = True,
        open_score: str = "p_open",
    ):
        super().__init__()
        self.distance = check_choice("distance", distance, SIMILARITIES)
        self.temperature = check_positive("temperature", TEMPERATURES[distance] if temperature is None else temperature)
        self.open = nn.Parameter(torch.randn(dim) * dim**-0.5)  # of length 1 or so: a cosine needs a direction
        self.sharpness = nn.Parameter(torch.zeros(())) if calibrated else None  # log of a factor on the similarities
        self.offset = nn.Parameter(torch.zeros(())) if calibrated else None  # of the open one
        self.choose_score(open_score)

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        return self.State(class_mean(support.vec, one_hot))

    def compare(self, state: Any, query: Views) -> Comparison:
        similarity = self.similarity(state, query)
        return Comparison(similarity[:, :-1], {"p_open": lambda: similarity.softmax(dim=-1)[:, -1]})

    def similarity(self, state: Any, query: Views) -> Tensor:
        """(Q, N + 1) logits, the open prototype last."""
        proto = torch.cat([state.proto, self.open[None]])
        similarity = SIMILARITIES[self.distance](query.vec, proto) / self.temperature
        if self.sharpness is None or self.offset is None:
            return similarity
        return similarity * self.sharpness.exp() + F.pad(self.offset.view(1), (state.proto.shape[0], 0))

    def loss(self, episode: Episode) -> dict[str, Tensor]:
        support, query = self.views(episode)
        similarity = self.similarity(self.enroll(support, episode.support_one_hot, episode.drawn), query)
        return {
            "classes": known_cross_entropy(similarity, torch.where(episode.known, episode.query_label, episode.n_way))
        }
