r"""Huang et al. 2022, Task-Adaptive Negative Envision (ATT, ATT-G): a task imagines one more class, what it is not.

With a memory M and one head, :math:`\mathrm{Att}(x; M) = x + W_o\,\mathrm{softmax}(W_q x (W_k M)^T / \sqrt D)\,W_v M`,
two such layers turn the class means :math:`s_n` into prototypes and negatives.  The mean negative stands for everything
unknown:

.. math:: p_n = \mathrm{Att}_{cal}(s_n; M), \quad u_n = \mathrm{Att}_{neg}(p_n; M), \quad p_- = \frac1N \sum_n u_n

.. math:: s(q) = \tau \cos(q, [p_1 .. p_N, p_-]), \qquad \mathrm{open}(q) = \mathrm{softmax}(s)_{N+1}

Loss: cross-entropy over N + 1 classes, unknown queries in the last.  The binary cross-entropy of
:math:`\sigma(1 - \tau \cos(q, u_n))` with 1[y = n] keeps u_n away from its own class and near all else.  Both
are added once more for the mirrored task, in which the unknown classes are enrolled and the known ones unknown.

``att``: M is the task's own class means (``memory="cross"``).  ``memory="single"`` is what the released program does:
every class sees itself alone, so the softmax is over one key.  There u_n sees :math:`p_n`, not :math:`s_n`.
``att-g``: M is the rows of the base classifier; training hides those of the task's classes.  ``rows="means"`` (ours)
takes the mean embedding of each base class: rows that are short against the embeddings keep the attention flat.
``negative="mlp"`` sends the mean of the u_n through two linear layers.

Differs from the paper: the mirrored support is never among the queries, as in the released program it may be.  A task
without a mirrored side is learnt from one side.  The published numbers were chosen on the test classes and average five
augmented views of each support image.  Here validation chooses, and each image counts once.  Base rows are not learned,
and are the class means when the backbone came without its classifier.

>>> import torch
>>> from glocal.research.types import Episode
>>> _ = torch.manual_seed(0)
>>> method = ATT(8).eval()
>>> task = Episode(torch.randn(2, 8, 3, 3), torch.tensor([0, 1]), torch.randn(4, 8, 3, 3), torch.tensor([0, 1, 1, -1]))
>>> [tuple(x.shape) for x in method(task)], sorted(method.loss(task))
([(4, 2), (4,)], ['classes', 'negatives'])
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glocal.research.methods.base import (
    Comparison,
    Method,
    MethodCard,
    Paper,
    check_choice,
    check_positive,
    known_cross_entropy,
)
from glocal.research.methods.blocks import BaseRows
from glocal.research.ops.similarity import class_mean, cosine
from glocal.research.types import BaseClasses, Episode, Views, to_one_hot

PAPER = Paper(
    "Huang et al.", "Task-Adaptive Negative Envision for Few-Shot Open-Set Recognition", "CVPR", 2022, "2012.13073"
)
MEMORIES = ("cross", "single")
NEGATIVES = ("mean", "mlp")
BASE_ROWS = ("classifier", "means")


class ATT(Method):
    card = MethodCard("ATT", PAPER, ("att",), learns="two attention layers over the task's class means, and a scale")
    own_scores = ("negative",)

    class State(NamedTuple):
        proto: Tensor  # (N, D) calibrated class means
        negative: Tensor  # (D,) the class of everything unknown

    needs_mirror = True

    def __init__(
        self,
        dim: int,
        *,
        memory: str = "cross",
        negative: str = "mean",
        scale: float = 10.0,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        open_score: str | None = None,
    ):
        super().__init__()
        looks = check_choice("memory", memory, MEMORIES) == "cross"
        self.calibrator, self.open_generator = (
            MemoryAttention(dim, looks=looks, dropout=dropout, attention_dropout=attention_dropout) for _ in range(2)
        )
        self.aggregate = negative_mlp(dim) if check_choice("negative", negative, NEGATIVES) == "mlp" else nn.Identity()
        self.scale = nn.Parameter(torch.tensor(check_positive("scale", float(scale))))
        self.choose_score(open_score or "negative")

    def memory_of(self, mean: Tensor, drawn: tuple[int, ...]) -> Tensor:
        """M (M, D) for a task with class means (N, D)."""
        return mean

    def envision(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Prototypes p_n and negatives u_n, (N, D) each."""
        mean = class_mean(support.vec, one_hot)
        memory = self.memory_of(mean, drawn)
        proto = self.calibrator(mean, memory)
        return proto, self.open_generator(proto, memory)

    def finish(self, proto: Tensor, unlike: Tensor) -> Any:
        return self.State(proto, self.aggregate(unlike.mean(dim=0)))

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        return self.finish(*self.envision(support, one_hot, drawn))

    def similarity(self, state: Any, query: Views) -> Tensor:
        """(Q, N + 1), the last column that of the unknown."""
        return self.scale * cosine(query.vec, torch.cat([state.proto, state.negative[None]]))

    def compare(self, state: Any, query: Views) -> Comparison:
        similarity = self.similarity(state, query)
        return Comparison(similarity[:, :-1], {"negative": lambda: similarity.softmax(dim=-1)[:, -1]})

    def loss(self, episode: Episode) -> dict[str, Tensor]:
        sides = [episode] if episode.mirror_support is None else [episode, episode.mirrored()]
        classes, negatives = zip(*map(self.side_terms, sides), strict=True)
        return {"classes": torch.stack(classes).sum(), "negatives": torch.stack(negatives).sum()}

    def side_terms(self, episode: Episode) -> tuple[Tensor, Tensor]:
        """Cross-entropy over N + 1 classes and binary cross-entropy of the u_n, of one side of the task."""
        support, query = self.views(episode)
        proto, unlike = self.envision(support, episode.support_one_hot, episode.drawn)
        similarity = self.similarity(self.finish(proto, unlike), query)
        label = torch.where(episode.known, episode.query_label, len(proto))
        away = 1 - self.scale * cosine(query.vec, unlike)  # (Q, N)
        own = to_one_hot(episode.query_label, len(proto)).to(away)
        return known_cross_entropy(similarity, label), F.binary_cross_entropy_with_logits(away, own)


class ATTG(ATT):
    card = MethodCard("ATT-G", PAPER, ("att-g",), learns="two attention layers over the base classes, and a scale")

    needs_base = True

    def __init__(
        self,
        dim: int,
        *,
        rows: str = "classifier",
        negative: str = "mean",
        scale: float = 10.0,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        open_score: str | None = None,
    ):
        super().__init__(
            dim,
            negative=negative,
            scale=scale,
            dropout=dropout,
            attention_dropout=attention_dropout,
            open_score=open_score,
        )
        self.rows = check_choice("rows", rows, BASE_ROWS)
        self.base = BaseRows(dim, learned=False)

    def set_base(self, base: BaseClasses) -> None:
        self.base.fill(base.weight if self.rows == "classifier" else base.centre)

    def memory_of(self, mean: Tensor, drawn: tuple[int, ...]) -> Tensor:
        # Only in training does ``drawn`` count base classes; later it counts those of another split.
        rows: Tensor = self.base(drawn if self.training else ())
        return rows


class MemoryAttention(nn.Module):
    """x + Dropout(W_o Dropout(softmax(W_q x (W_k M)ᵀ / √D)) W_v M): rows x (N, D) look into a memory M (M, D).

    Without ``looks`` every row is its own memory and W_q, W_k, which a softmax over one key ignores, are not there.
    """

    def __init__(self, dim: int, *, looks: bool, dropout: float, attention_dropout: float):
        super().__init__()
        self.w_qs, self.w_ks = (nn.Linear(dim, dim, bias=False) if looks else None for _ in range(2))
        self.w_vs, self.fc = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        for layer in (self.w_qs, self.w_ks, self.w_vs, self.fc):
            if layer is not None:
                nn.init.xavier_normal_(layer.weight)
        self.dropout, self.attention_dropout = nn.Dropout(dropout), nn.Dropout(attention_dropout)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        if self.w_qs is None or self.w_ks is None:
            memory, attention = x, torch.eye(x.shape[0]).to(x)
        else:
            attention = (self.w_qs(x) @ self.w_ks(memory).mT / math.sqrt(x.shape[-1])).softmax(dim=-1)  # (N, M)
        out: Tensor = x + self.dropout(self.fc(self.attention_dropout(attention) @ self.w_vs(memory)))
        return out


def negative_mlp(dim: int) -> nn.Sequential:
    """As published: (D,) -> (D,)."""
    return nn.Sequential(nn.Linear(dim, dim), nn.LeakyReLU(0.5), nn.Dropout(0.5), nn.Linear(dim, dim))
