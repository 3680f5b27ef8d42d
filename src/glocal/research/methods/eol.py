r"""Ochal et al. 2024, EOL: prototypes, scales and shifts fitted to all queries of a task at once.  Transductive.

Embeddings are centred by the base mean and normalised.  Every class has a prototype (at first its mean), a scale and a
shift (at first :math:`\eta = \delta = 0`).  Being none of them has a constant logit.  So the N + 1 probabilities are

.. math:: l_n = \tau (e^{\eta_n} \cos(x, \mu_n) + \delta_n), \qquad p = \mathrm{softmax}(l_1, .., l_N, \log N - \log b)

with :math:`\tau = 10`, b = 0.5.  Fifty steps of Adam (0.01) on μ, η, δ lessen, :math:`\bar p` the mean over queries,

.. math::
    -\tfrac1S \sum_{i \in S} \log p_{i y_i} - \tfrac1{NQ} \sum_{i \in Q} \sum_{n \le N} p_{in} \log p_{in}
    + \tfrac1N \sum_{n \le N} w \bar p_n \log(w \bar p_n) + w_o \bar p_o \log(w_o \bar p_o),
    \quad w = \tfrac{K}{1 - b}, \; w_o = \tfrac1b

Then :math:`\mu_n = \sum_i p_{in} x_i / \sum_i p_{in}` over support and queries.  Logits: l with these prototypes.
Open score "outlier": :math:`p_o` before they moved; any other of ``OPEN_SCORES`` by name.  Nothing is learned.

Differs from the paper: unequal shots have K = S / N.  The published program writes :math:`1 - p_o = \sigma(-o)` with
the outlier logit :math:`o = \log N - \log b - \log\sum_n e^{l_n}`, which is the softmax above.  The gradient is written
out below and not left to autograd: evaluation runs where there is none, and a step is several times faster.  Ours:
``balance="ways"`` has w = N / (1 - b).  With b = 0.5 its marginal terms rest where half of the queries are unknown and
the classes divide the others.  With the program's K they do so only if K = N, as in 5-way 5-shot tasks.

>>> import torch
>>> from glocal.research.types import BaseClasses, Episode
>>> method, rows = EOL(2), torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
>>> method.set_base(BaseClasses(("a", "b"), rows, rows, rows.mean(dim=0)))
>>> x, label = torch.tensor([[2.0, 0.1], [1.0, 0.0], [0.0, 2.0]]).view(3, 2, 1, 1), torch.tensor([0, -1])
>>> out = method(Episode(x[:1], torch.tensor([0]), x[1:], label))
>>> bool(out.open_score[0] < 0.2 < 0.9 < out.open_score[1])
True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glocal.common.errors import RecipeError
from glocal.research.methods.base import Comparison, Method, MethodCard, Paper, check_choice, check_positive
from glocal.research.methods.blocks import Centring
from glocal.research.ops.similarity import class_mean, pool
from glocal.research.types import BaseClasses, Views

BETAS, EPS = (0.9, 0.999), 1e-8  # of Adam, as everywhere
BALANCES = ("shots", "ways")
TINY = 1e-12  # no length and no sum of probabilities is smaller


class EOL(Method):
    card = MethodCard(
        "EOL",
        Paper(
            "Ochal et al.",
            "EOL: Transductive Few-Shot Open-Set Recognition by Enhancing Outlier Logits",
            "arXiv",
            2024,
            "2408.02052",
        ),
    )
    own_scores = ("outlier",)

    class State(NamedTuple):
        support: Tensor  # (S, D) unit vectors: they are fitted together with the queries
        one_hot: Tensor  # (S, N)

    needs_base = True
    transductive = True

    def __init__(
        self,
        dim: int,
        *,
        scale: float = 10.0,
        unknown_share: float = 0.5,
        steps: int = 50,
        rate: float = 0.01,
        balance: str = "shots",
        open_score: str = "outlier",
    ):
        super().__init__()
        self.scale = check_positive("scale", scale)
        if not 0 < unknown_share < 1:
            raise RecipeError(f"unknown_share must lie between 0 and 1 (b in the paper), got {unknown_share}")
        self.unknown_share = unknown_share
        if steps < 0:
            raise RecipeError(f"steps must be 0 (class means as they are) or more, got {steps}")
        self.steps = steps
        self.rate = check_positive("rate", rate)
        self.balance = check_choice("balance", balance, BALANCES)
        self.choose_score(open_score)
        self.centring = Centring(dim)

    def set_base(self, base: BaseClasses) -> None:
        self.centring.fill(base.mean)

    def embed(self, maps: Tensor) -> Views:
        return Views(pool(self.centring(maps)))

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        return self.State(support.vec, one_hot.to(support.vec))

    def compare(self, state: Any, query: Views) -> Comparison:
        x, s = torch.cat([state.support, query.vec]), len(state.support)
        with torch.no_grad():  # a backbone that learns takes what was fitted as given
            mean = class_mean(state.support, state.one_hot)
            theta = torch.cat([mean, mean.new_zeros(len(mean), 2)], dim=1)
            loss = Objective(x, state.one_hot, scale=self.scale, share=self.unknown_share, balance=self.balance)
            adam(theta, loss.gradient, steps=self.steps, rate=self.rate)
        p = log_p(logits(theta, x, self.scale), self.unknown_share).exp()
        known = p[:, :-1]
        moved = known.mT @ x / known.sum(dim=0).clamp_min(TINY)[:, None]
        fitted = logits(torch.cat([moved, theta[:, -2:]], dim=1), x[s:], self.scale)
        return Comparison(fitted, {"outlier": lambda: p[s:, -1]})


def logits(theta: Tensor, x: Tensor, scale: float) -> Tensor:
    """theta (N, D + 2) = prototypes, log of scales, shifts; unit vectors x (B, D) -> (B, N)."""
    mu, eta, delta = theta[:, :-2], theta[:, -2], theta[:, -1]
    return scale * (eta.exp() * (x @ F.normalize(mu, dim=1).mT) + delta)


def log_p(logit: Tensor, share: float) -> Tensor:
    """(B, N) -> (B, N + 1): log of the classes' probabilities and, last, of being none of them."""
    return F.pad(logit, (0, 1), value=math.log(logit.shape[1] / share)).log_softmax(dim=1)


class Objective:
    """The loss above for one task: unit vectors x (S + Q, D), support first, and its one-hot labels (S, N)."""

    def __init__(self, x: Tensor, one_hot: Tensor, *, scale: float, share: float, balance: str):
        (s, n), q = one_hot.shape, max(1, len(x) - len(one_hot))
        self.x, self.s, self.n, self.scale, self.share = x, s, n, scale, share
        of_known = (s / n if balance == "shots" else n) / (1 - share)
        self.weight = x.new_tensor([of_known] * n + [1 / share]) / q  # (N + 1,) w / Q, w_o / Q
        self.factor = self.weight / x.new_tensor([n] * n + [1])  # (N + 1,) before the marginal entropies
        self.entropy = x.new_tensor([-1 / (n * q)] * n + [0])  # (N + 1,) of single queries; the outlier has none
        self.label = F.pad(one_hot / -s, (0, 1))  # (S, N + 1) what the cross-entropy adds to u

    def gradient(self, theta: Tensor) -> Tensor:
        """By hand, (N, D + 2) -> (N, D + 2): with u = dL / d log p, a softmax has dL / dl = u - p Σu."""
        mu, slope = theta[:, :-2], self.scale * theta[:, -2:-1].exp()  # (N, D), (N, 1)
        length = mu.norm(dim=1, keepdim=True).clamp_min(TINY)
        unit = mu / length
        logp = log_p(torch.addmm(self.scale * theta[:, -1], self.x, (slope * unit).mT), self.share)
        p = logp.exp()  # (S + Q, N + 1)
        of_query = p[self.s :]
        by_mean = self.factor * ((self.weight * of_query.sum(dim=0)).clamp_min(TINY).log() + 1) + self.entropy
        u = torch.cat([self.label, of_query * torch.addcmul(by_mean, self.entropy, logp[self.s :])])
        g = torch.addcmul(u, p, u.sum(dim=1, keepdim=True), value=-1)[:, : self.n]  # (S + Q, N) by logit
        by_unit = g.mT @ self.x  # (N, D), before the slope
        along = (unit * by_unit).sum(dim=1, keepdim=True)  # (N, 1) = Σ_i g cos
        by_mu = (slope / length) * torch.addcmul(by_unit, along, unit, value=-1)
        return torch.cat([by_mu, slope * along, self.scale * g.sum(dim=0)[:, None]], dim=1)


def adam(theta: Tensor, gradient: Callable[[Tensor], Tensor], *, steps: int, rate: float) -> None:
    """Kingma and Ba 2015, in place."""
    (b1, b2), m, v = BETAS, torch.zeros_like(theta), torch.zeros_like(theta)
    for t in range(1, steps + 1):
        g = gradient(theta)
        m.lerp_(g, 1 - b1)
        v.lerp_(g.square(), 1 - b2)
        theta.addcdiv_(m, (v / (1 - b2**t)).sqrt_().add_(EPS), value=-rate / (1 - b1**t))
