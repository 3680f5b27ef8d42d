r"""Jeong et al. 2021, SnaTCHer-T and SnaTCHer-L: SnaTCHer's open score with a normalisation in place of attention.

Both are a **reconstruction**: the authors released SnaTCHer-F alone, and every table must say so.
Class means P (N, D) are normalised, with :math:`\gamma, \beta` per channel; as in SnaTCHer-F, c is the nearest class:

.. math:: T(P) = \gamma \odot (P - \mu) / \sqrt{\sigma^2 + \epsilon} + \beta

.. math:: s_n(q) = -\lVert q - T(P)_n \rVert^2 / \tau, \qquad
          \mathrm{open}(q) = \frac1{64} \sum_n \lVert T(P^{c \leftarrow q})_n - T(P)_n \rVert^2

-L, layer-task normalisation: one μ and σ² over the whole N x D stack.
-T, TaskNorm (Bronskill et al. 2020): moments of each channel over the task blended with those of each row,

.. math:: \mu = a \mu_t + (1 - a) \mu_l, \quad
          \sigma^2 = a (\sigma_t^2 + (\mu_t - \mu)^2) + (1 - a) (\sigma_l^2 + (\mu_l - \mu)^2)

with :math:`a = 1 / (1 + e^{-(w S + b)})`.  The more support images, S = N K, the more the task's moments may count.
w = b = 0 at the start.

Loss: cross-entropy of softmax(s) on known queries.

Differs from the paper: nothing is known of its program.  Ours: variances divide by their count, so that one class is
enough; ε = 1e-5; τ = 64 and no second loss term.  Queries are taken together: swapped stacks share N - 1 rows,
so moments of N + Q rows are taken once and updated.

>>> import torch
>>> from glocal.research.types import Views
>>> for method in (SnaTCHerT(4, temperature=1.0), SnaTCHerL(4, temperature=1.0)):
...     state = method.enroll(Views(torch.eye(4)[:2]), torch.eye(2))
...     own, far = method.score(state, Views(torch.stack([state.raw[0], 5 * torch.eye(4)[3]]))).open_score.tolist()
...     print(round(own, 6), far > 0.01)
0.0 True
0.0 True
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glocal.research.methods.base import Comparison, Method, MethodCard, check_positive
from glocal.research.methods.snatcher import PAPER, SCALE, movement
from glocal.research.ops.similarity import class_mean, neg_sq_euclidean
from glocal.research.types import Views

EPSILON = 1e-5
UNRELEASED = "the authors released SnaTCHer-F alone, and this follows their text"


class Moments(NamedTuple):
    mean: Tensor
    variance: Tensor


class SnaTCHerNorm(Method):
    """What both share; a subclass says how the class means are normalised and how far a query moves them."""

    own_scores = ("snatcher",)

    class State(NamedTuple):
        proto: Tensor  # (N, D) normalised class means
        raw: Tensor  # (N, D) class means

    def __init__(self, dim: int, *, temperature: float = 64.0, open_score: str = "snatcher"):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.temperature = check_positive("temperature", temperature)
        self.choose_score(open_score)

    def moved(self, state: Any, query: Tensor, logits: Tensor) -> Tensor:
        """The open score: query (Q, D), logits (Q, N) -> (Q,)."""
        raise NotImplementedError

    def normalise(self, x: Tensor, moments: Moments) -> Tensor:
        """x (..., N, D) by moments that broadcast to it."""
        return (x - moments.mean) * (moments.variance + EPSILON).rsqrt() * self.gain + self.shift

    def compare(self, state: Any, query: Views) -> Comparison:
        logits = neg_sq_euclidean(query.vec, state.proto) / self.temperature
        return Comparison(logits, {"snatcher": lambda: self.moved(state, query.vec, logits)})


class SnaTCHerL(SnaTCHerNorm):
    card = MethodCard(
        "SnaTCHer-L", PAPER, ("snatcher-l",), learns="a gain and a shift per channel", reconstruction=UNRELEASED
    )

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        raw = class_mean(support.vec, one_hot)
        return self.State(self.normalise(raw, moments_over(raw, (-2, -1))), raw)

    def moved(self, state: Any, query: Tensor, logits: Tensor) -> Tensor:
        """No swapped stack is built: a row x that stays moves by γ (stretch x - slide), whose square needs two sums."""
        raw: Tensor = state.raw
        at, (old_mean, old_variance) = logits.argmax(dim=-1), moments_over(raw, (-2, -1))
        row = swapped_row_moments(raw, query, at)
        mean = row.mean.mean(dim=-2)  # (Q, 1)
        variance = (row.variance + (row.mean - mean.unsqueeze(-2)).square()).mean(dim=-2)
        before, after = (old_variance + EPSILON).rsqrt(), (variance + EPSILON).rsqrt()
        stretch, slide = after - before, after * (mean - old_mean)  # (Q, 1)
        x, weight = raw - old_mean, self.gain.square()
        stays = (  # (Q, N)
            stretch.square() * (x.square() @ weight)
            - 2 * stretch * slide * (x @ weight)
            + slide.square() * weight.sum()
        )
        enters = (after * (query - mean) - before * x[at]).square() @ weight  # (Q,) in the place of row ``at``
        return stays.scatter(1, at[:, None], enters[:, None]).sum(dim=-1) / SCALE


class SnaTCHerT(SnaTCHerNorm):
    card = MethodCard(
        "SnaTCHer-T",
        PAPER,
        ("snatcher-t",),
        learns="a gain and a shift per channel, and how far to trust the task's moments",
        reconstruction=UNRELEASED,
    )

    class State(NamedTuple):
        proto: Tensor  # (N, D) normalised class means
        raw: Tensor  # (N, D) class means
        trust: Tensor  # () a, the share of the task's moments

    def __init__(self, dim: int, *, temperature: float = 64.0, open_score: str = "snatcher"):
        super().__init__(dim, temperature=temperature, open_score=open_score)
        self.trust_slope, self.trust_offset = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        raw = class_mean(support.vec, one_hot)
        trust = torch.sigmoid(self.trust_slope * one_hot.shape[0] + self.trust_offset)
        return self.State(self.normalise(raw, blend(moments_over(raw, -2), moments_over(raw, -1), trust)), raw, trust)

    def moved(self, state: Any, query: Tensor, logits: Tensor) -> Tensor:
        def swapped(raw: Tensor, other: Tensor, at: Tensor) -> Tensor:
            task, row = swapped_task_moments(raw, other, at), swapped_row_moments(raw, other, at)
            return self.normalise(swap(raw, other, at), blend(task, row, state.trust))

        return movement(swapped, state, query, logits)


def blend(task: Moments, row: Moments, trust: Tensor) -> Moments:
    """Moments of a mixture, ``trust`` of the first and 1 - trust of the second."""
    apart = (task.mean - row.mean).square()
    return Moments(
        torch.lerp(row.mean, task.mean, trust),
        torch.lerp(row.variance, task.variance, trust) + trust * (1 - trust) * apart,
    )


def moments_over(x: Tensor, dim: int | tuple[int, ...]) -> Moments:
    variance, mean = torch.var_mean(x, dim=dim, correction=0, keepdim=True)
    return Moments(mean, variance)


def swapped_row_moments(x: Tensor, other: Tensor, at: Tensor) -> Moments:
    """Of every row over its channels, in each swapped stack: (Q, N, 1)."""
    old, new = moments_over(x, -1), moments_over(other, -1)
    return Moments(swap(old.mean, new.mean, at), swap(old.variance, new.variance, at))


def swapped_task_moments(x: Tensor, other: Tensor, at: Tensor) -> Moments:
    """Of every channel over the rows of each swapped stack: (Q, 1, D), from those of x (N, D) by one step of Welford's.

    With δ = (new - old) / N the mean moves by δ.  The variance moves by δ ((new - new mean) + (old - old mean)).
    """
    mean, variance = moments_over(x, -2)  # (1, D)
    step = (other - x[at]) / x.shape[0]  # (Q, D)
    moved = variance + step * ((other - mean - step) + (x[at] - mean))
    return Moments((mean + step).unsqueeze(-2), moved.clamp_min(0).unsqueeze(-2))


def swap(rows: Tensor, other: Tensor, at: Tensor) -> Tensor:
    """Row at[i] of a copy of ``rows`` (N, F) replaced by other[i], for every i: other (Q, F) -> (Q, N, F)."""
    here = torch.arange(rows.shape[0], device=rows.device) == at[:, None]  # (Q, N)
    return torch.where(here[..., None], other[:, None], rows)
