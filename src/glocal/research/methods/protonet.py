r"""Snell et al. 2017, ProtoNet: a class is the mean of its support embeddings.

.. math:: p_n = \frac1{K_n} \sum_{i: y_i = n} e_i, \qquad s_n(q) = -\lVert q - p_n \rVert^2 / T

Loss: cross-entropy of softmax(s) on known queries; unknown queries are not used.
Open score: entropy of softmax(s), as the GEL paper scores it, or any other of ``OPEN_SCORES`` by name.  ``nearest`` is
the distance to the nearest support image of any class, :math:`\min_i \lVert q - e_i \rVert^2 / T`.

Differs from the paper: the temperature T = 64 comes from the ResNet-12 line of work (640 channels).  Plain Euclid
(T = 1) and cosine similarity (T = 0.1) are offered beside the squared distance.

>>> import torch
>>> from glocal.research.types import Views
>>> method = ProtoNet(2, temperature=1.0, open_score="distance")
>>> state = method.enroll(Views(torch.tensor([[0.0, 0.0], [4.0, 0.0]])), torch.eye(2))
>>> method.score(state, Views(torch.tensor([[1.0, 0.0]])))
Output(logits=tensor([[-1., -9.]]), open_score=tensor([1.]))
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from glocal.research.methods.base import (
    TEMPERATURES,
    Comparison,
    Method,
    MethodCard,
    Paper,
    check_choice,
    check_positive,
)
from glocal.research.ops.open_scores import distance as smallest_distance
from glocal.research.ops.similarity import SIMILARITIES, class_mean
from glocal.research.types import Views


class ProtoNet(Method):
    card = MethodCard(
        "ProtoNet",
        Paper("Snell et al.", "Prototypical Networks for Few-shot Learning", "NIPS", 2017, "1703.05175"),
        ("protonet",),
    )
    own_scores = ("nearest",)

    class State(NamedTuple):
        proto: Tensor  # (N, D) class means
        support: Tensor  # (S, D) every image, for the score that asks for the nearest

    def __init__(
        self,
        dim: int,
        *,
        distance: str = "sq-euclidean",
        temperature: float | None = None,
        open_score: str = "entropy",
    ):
        super().__init__()
        self.distance = check_choice("distance", distance, SIMILARITIES)
        self.temperature = check_positive("temperature", TEMPERATURES[distance] if temperature is None else temperature)
        self.choose_score(open_score)

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        return self.State(class_mean(support.vec, one_hot), support.vec)

    def compare(self, state: Any, query: Views) -> Comparison:
        similarity = SIMILARITIES[self.distance]
        logits = similarity(query.vec, state.proto) / self.temperature
        return Comparison(
            logits, {"nearest": lambda: smallest_distance(similarity(query.vec, state.support) / self.temperature)}
        )
