r"""Sun et al. 2022, deep nearest neighbours: what is far from the k-th nearest support embedding is unknown.

With unit embeddings :math:`z = x / \lVert x \rVert` and class means :math:`p_n` of the support:

.. math:: s_n(q) = 10 \cos(z_q, p_n), \qquad r_k(q) = \text{the k-th smallest } \lVert z_q - z_i \rVert
    \text{ over the support}

Open scores: "knn" is :math:`r_k`; "knn_mean", the default, is the mean of :math:`r_1 .. r_k`; "knn_balanced" (ours)
takes the k-th, or last, neighbour within each class and then the nearest class, so none gains by having many images.
Nothing is learned.  ``centre = true`` takes the mean of the base images away first.

Differs from the paper: there the neighbours are a whole training set (k is 50 or 1000), here the few images of a task.
The program of OSLO uses the mean with k = 1 for one image per class and k = 3 for five, and centres first.

>>> import torch
>>> from glocal.research.types import Views
>>> method = KNN(2)
>>> state = method.enroll(method.embed(torch.tensor([[2.0, 0.0], [0.0, 3.0]])[:, :, None, None]), torch.eye(2))
>>> method.score(state, method.embed(torch.tensor([[5.0, 0.0]])[:, :, None, None]))
Output(logits=tensor([[10.,  0.]]), open_score=tensor([0.]))
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glocal.common.errors import RecipeError
from glocal.research.methods.base import Comparison, Method, MethodCard, Paper
from glocal.research.ops.similarity import class_mean, cosine, neg_euclidean, pool
from glocal.research.types import Views

SHARPNESS = 10.0  # of the logits; no decision depends on it


class KNN(Method):
    card = MethodCard(
        "kNN",
        Paper("Sun et al.", "Out-of-Distribution Detection with Deep Nearest Neighbors", "ICML", 2022, "2204.06507"),
    )
    own_scores = ("knn", "knn_mean", "knn_balanced")
    pooled = True

    class State(NamedTuple):
        proto: Tensor  # (N, D) class means of unit vectors
        support: Tensor  # (S, D) unit vectors
        one_hot: Tensor  # (S, N)

    def __init__(self, dim: int, *, k: int = 1, open_score: str = "knn_mean"):
        super().__init__()
        if k < 1:
            raise RecipeError(f"k must be at least 1 (support images), got {k}")
        self.k = k
        self.choose_score(open_score)

    def embed(self, maps: Tensor) -> Views:
        return Views(F.normalize(pool(maps), dim=-1))

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        if self.k > support.vec.shape[0]:
            raise RecipeError(
                f"k = {self.k} neighbours need as many support images, this task has {support.vec.shape[0]}; "
                "set a smaller method.k"
            )
        one_hot = one_hot.to(support.vec)
        return self.State(class_mean(support.vec, one_hot), support.vec, one_hot)

    def compare(self, state: Any, query: Views) -> Comparison:
        away = -neg_euclidean(query.vec, state.support)  # (Q, S)
        return Comparison(
            SHARPNESS * cosine(query.vec, state.proto),
            {
                "knn": lambda: self._nearest(away)[:, -1],
                "knn_mean": lambda: self._nearest(away).mean(dim=1),
                "knn_balanced": lambda: self._balanced(away, state.one_hot),
            },
        )

    def _nearest(self, away: Tensor) -> Tensor:
        """(Q, k) the smallest distances, in order."""
        return away.topk(self.k, dim=-1, largest=False).values

    def _balanced(self, away: Tensor, one_hot: Tensor) -> Tensor:
        """Distances (Q, S) -> (Q,) the smallest over classes of the k-th, or last, within the class."""
        own = torch.where(one_hot.mT > 0, away[:, None], torch.inf)  # (Q, N, S)
        last = one_hot.sum(dim=0).clamp_max(self.k).long() - 1  # (N,)
        nearest = self._nearest(own)
        return nearest.gather(2, last[None, :, None].expand(nearest.shape[0], -1, 1))[:, :, 0].amin(dim=1)
