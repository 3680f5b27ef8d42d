r"""Mueller et al. 2025, Mahalanobis++: distances to class means, under what images of one base class have in common.

With unit embeddings :math:`z = x / \lVert x \rVert` of the n base images, their class means :math:`c_b` and a share a:

.. math:: \Sigma = \frac1n \sum_i (z_i - c_{y_i})(z_i - c_{y_i})^T, \qquad
    \Sigma_a = (1 - a) \Sigma + a \frac{\mathrm{tr}\,\Sigma}{D} I

A task's class mean :math:`\mu_n` of support z is not normalised again:

.. math:: d_n(q) = (z_q - \mu_n)^T \Sigma_a^{-1} (z_q - \mu_n), \qquad s_n(q) = -d_n(q) / 2

Open scores: "distance", :math:`\min_n d_n / 2`, or "relative", which takes away :math:`d_0 / 2` (Ren et al. 2021).
:math:`d_0` is the distance to the mean m of all base images, with the same a.  It takes their whole covariance,
:math:`\Sigma + \sum_b \frac{n_b}{n} (c_b - m)(c_b - m)^T`.  Any of ``OPEN_SCORES`` by name.  Nothing is learned.

``shrinkage`` is a; ``normalise = false`` leaves x as it is.  ``correct_shots`` divides :math:`d_n` by
:math:`1 + 1 / K_n`, by how much a mean of :math:`K_n` images widens the distances.

Differs from the paper: there the known classes are those the network was trained on.  Here base classes give the
covariance alone, and the means come from the support.  ``shrinkage`` and ``correct_shots`` are ours: without the
first, fewer images than dimensions have no inverse and are refused.

>>> import torch
>>> from glocal.research.types import BaseClasses, Views
>>> _, vec, label = torch.manual_seed(0), torch.randn(40, 2), torch.arange(40) % 2
>>> method = Mahalanobis(2)
>>> method.set_base(BaseClasses(("a", "b"), vec[:2], vec[:2], vec[0], vec, label))
>>> state = method.enroll(method.embed(torch.eye(2)[:, :, None, None]), torch.eye(2))
>>> method.score(state, method.embed(3 * torch.eye(2)[:1, :, None, None])).logits.argmax().item()
0
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glocal.common.errors import RecipeError
from glocal.research.methods.base import Comparison, Method, MethodCard, Paper
from glocal.research.methods.blocks import BaseRows
from glocal.research.ops.open_scores import distance
from glocal.research.ops.similarity import class_mean, neg_sq_euclidean, pool
from glocal.research.types import BaseClasses, Views


class Mahalanobis(Method):
    card = MethodCard(
        "Mahalanobis++",
        Paper("Mueller et al.", "Mahalanobis++: Improving OOD Detection via Feature Normalization", "ICML", 2025,
              "2505.18032"),
    )  # fmt: skip
    own_scores = ("relative",)
    needs_base = True
    pooled = True

    class State(NamedTuple):
        proto: Tensor  # (N, D) class means, whitened
        factor: Tensor  # (N,) on their distances

    def __init__(
        self,
        dim: int,
        *,
        shrinkage: float = 0.0,
        normalise: bool = True,
        correct_shots: bool = False,
        open_score: str = "distance",
    ):
        super().__init__()
        if not 0 <= shrinkage <= 1:
            raise RecipeError(f"shrinkage must lie in 0..1, got {shrinkage}")
        self.shrinkage, self.normalise, self.correct_shots = shrinkage, normalise, correct_shots
        self.whiten = BaseRows(dim, learned=False)  # (D, D) of z, by the covariance within classes
        self.rewhiten = BaseRows(dim, learned=False)  # (D, D) of whitened z, by the whole covariance
        self.origin = BaseRows(dim, learned=False)  # (1, D) the mean of all base images, by the whole covariance
        self.choose_score(open_score)

    def set_base(self, base: BaseClasses) -> None:
        vec, label = base.images()
        z = self._unit(vec.double())
        centre = z.new_zeros(len(base.names), z.shape[1]).index_add(0, label, z) / label.bincount()[:, None]
        mean, within = z.mean(dim=0), self._shrunk(z - centre[label])
        total = self._shrunk(z - mean)
        whiten, rewhiten = (torch.linalg.inv(factor) for factor in (within, total))
        self.whiten.fill(whiten)
        self.rewhiten.fill(rewhiten @ within)
        self.origin.fill((rewhiten @ mean)[None])

    def _shrunk(self, moved: Tensor) -> Tensor:
        """Differences from a mean (I, D) -> the lower factor of their covariance (D, D), shrunk."""
        n, dim = moved.shape
        covariance = moved.mT @ moved / n
        scale = covariance.trace() / dim
        covariance = (1 - self.shrinkage) * covariance + self.shrinkage * scale * torch.eye(dim).to(covariance)
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(covariance)
        if failed or factor.diagonal().min() ** 2 < 1e-10 * scale:
            raise RecipeError(
                f"the covariance of {n} base images in {dim} dimensions has no inverse; set method.shrinkage above 0, "
                "for example 0.1"
            )
        return factor

    def _unit(self, vec: Tensor) -> Tensor:
        return F.normalize(vec, dim=-1) if self.normalise else vec

    def embed(self, maps: Tensor) -> Views:
        return Views(self._unit(pool(maps)) @ self.whiten().mT)

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        shots = one_hot.to(support.vec).sum(dim=0)
        factor = shots / (shots + 1) if self.correct_shots else torch.ones_like(shots)
        return self.State(class_mean(support.vec, one_hot), factor)

    def compare(self, state: Any, query: Views) -> Comparison:
        logits = neg_sq_euclidean(query.vec, state.proto) * state.factor / 2

        def relative() -> Tensor:
            of_all: Tensor = (query.vec @ self.rewhiten().mT - self.origin()).square().sum(dim=-1)
            return distance(logits) - of_all / 2

        return Comparison(logits, {"relative": relative})
