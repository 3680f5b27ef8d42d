r"""Boudiaf et al. 2023, OSLO: prototypes and the queries' inlierness, estimated in turn.  Transductive.

Support and queries are centred by their common mean and normalised.  From :math:`\mu_n` = class means and
:math:`z_{in} = 1/N`, twice, with :math:`l_{in} = \cos(x_i, \mu_n)`:

.. math::
    \xi_i = \sigma\Big(\sum_n z_{in} l_{in} / \lambda_\xi\Big), \qquad z_i = \mathrm{softmax}(\xi_i l_i / \lambda_z),
    \qquad \mu_n = \frac{\sum_i \xi_i z_{in} x_i}{\sum_i \xi_i z_{in}}

where support images count with :math:`\xi = 1` and their one-hot label.  Logits: l of the last prototypes.
Open score "outlier": :math:`1 - \xi`; any other of ``OPEN_SCORES`` by name.  Nothing is learned.

Differs from the paper: nothing in the numbers.  Its likelihood is a Gaussian's; the cosine is the published program's.

>>> import torch
>>> from glocal.research.types import Views
>>> method, x = OSLO(2), torch.tensor([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]])
>>> state = method.enroll(Views(x[[0, 2]]), torch.eye(2))
>>> method.score(state, Views(x[[1, 3]])).logits.argmax(-1).tolist()
[0, 1]
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glocal.common.errors import RecipeError
from glocal.research.methods.base import Comparison, Method, MethodCard, Paper, check_positive
from glocal.research.ops.similarity import class_mean, cosine
from glocal.research.types import Views


class OSLO(Method):
    card = MethodCard(
        "OSLO",
        Paper("Boudiaf et al.", "Open-Set Likelihood Maximization for Few-Shot Learning", "CVPR", 2023, "2301.08390"),
    )
    own_scores = ("outlier",)

    class State(NamedTuple):
        support: Tensor  # (S, D) as embedded: they are centred together with the queries
        one_hot: Tensor  # (S, N)

    transductive = True

    def __init__(
        self,
        dim: int,
        *,
        steps: int = 2,
        inlier_temperature: float = 0.05,
        assignment_temperature: float = 0.1,
        open_score: str = "outlier",
    ):
        super().__init__()
        if steps < 1:
            raise RecipeError(f"steps must be at least 1 (estimates of the inlierness), got {steps}")
        self.steps = steps
        self.inlier_temperature = check_positive("inlier_temperature", inlier_temperature)
        self.assignment_temperature = check_positive("assignment_temperature", assignment_temperature)
        self.choose_score(open_score)

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        return self.State(support.vec, one_hot.to(support.vec))

    def compare(self, state: Any, query: Views) -> Comparison:
        both = torch.cat([state.support, query.vec])
        both = F.normalize(both - both.mean(dim=0), dim=-1)
        x = both[len(state.support) :]
        proto = class_mean(both[: len(state.support)], state.one_hot)
        logits = cosine(x, proto)
        z = torch.full_like(logits, 1 / logits.shape[1])
        for _ in range(self.steps):
            inlier = (z * logits).sum(dim=1, keepdim=True) / self.inlier_temperature  # (Q, 1) logit of ξ
            z = (inlier.sigmoid() * logits / self.assignment_temperature).softmax(dim=1)
            share = torch.cat([state.one_hot, inlier.sigmoid() * z])  # (S + Q, N)
            proto = share.mT @ both / share.sum(dim=0)[:, None]
            logits = cosine(x, proto)
        return Comparison(logits, {"outlier": lambda: (-inlier[:, 0]).sigmoid()})
