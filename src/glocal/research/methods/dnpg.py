r"""Zhang et al. 2024, DNPG: several negatives of a task, mixed from what base classes learned to be far from.

Every base class has a vector :math:`c_b` near its images and :math:`o_b` far from them, fitted to fixed embeddings
(``BaseFit``) and then learned.  With the class means :math:`s_n` of the support:

.. math:: \alpha_n = \mathrm{softmax}_b(W_q s_n \cdot W_k c_b / \sqrt D), \qquad
    p_n = s_n + W_o \sum_b \alpha_{nb} W_v c_b, \qquad r_n = W'_o \sum_b \alpha_{nb} W'_v o_b

.. math:: m_j = \mathrm{MLP}_j\Big(\frac1N \sum_n r_n\Big), \qquad l_n(q) = \tau_1 \cos(q, p_n), \qquad
    l_-(q) = \max_j \tau_2 \cos(q, m_j) + \beta

Logits: :math:`l_1 .. l_N`.  Open score "negative": the last of softmax(:math:`l_1 .. l_N, l_-`).

Loss, over both sides of the task: cross-entropy over N + 1 classes.  Then the binary cross-entropy of
:math:`\sigma(1 - \tau_3 \cos(q, r_n))` with 1[y = n].  Then, of one side's negatives and the other's prototypes,

.. math:: L_{SA} = -\tfrac12 \sum_{\text{directions}} \Big(\operatorname{mean}_j \max_n \cos(m'_j, p_n)
    + \operatorname{mean}_n \max_j \cos(p_n, m'_j)\Big)

In training the base classes of the task are hidden.  Published: ``offset = false`` for miniImageNet, 8 ``negatives``
and 60 ``epochs`` for CIFAR-FS.

Differs from the paper: the program fits 60 base classes under augmentation, one term by rows of other classes, its
radius as memory left it.  Here all classes, plain images, each class's own rows and a radius of 1.

>>> import torch
>>> from glocal.research.types import BaseClasses, Views
>>> _, vec, label = torch.manual_seed(0), torch.randn(8, 4), torch.arange(8) % 2
>>> method = DNPG(4, epochs=1).eval()
>>> method.set_base(BaseClasses(("a", "b"), vec[:2], vec[:2], vec[0], vec, label))
>>> state = method.enroll(Views(torch.eye(4)[:3]), torch.eye(3))
>>> [tuple(x.shape) for x in (state.proto, state.negative, method.score(state, Views(vec)).open_score)]
[(3, 4), (5, 4), (8,)]
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glocal.common.errors import RecipeError
from glocal.research.methods.att import negative_mlp
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
from glocal.research.ops.similarity import class_mean, cosine
from glocal.research.types import BaseClasses, Episode, Views, to_one_hot

START = 0.03  # the fitted rows are made this small before they go on learning


class DNPG(Method):
    card = MethodCard(
        "DNPG",
        Paper(
            "Zhang et al.",
            "Learning Unknowns from Unknowns: Diversified Negative Prototypes Generator for Few-Shot Open-Set "
            "Recognition",
            "ACM MM",
            2024,
            "2408.13373",
        ),
        learns="two vectors per base class, an attention over them, an MLP per negative, three scales and an offset",
    )
    own_scores = ("negative",)
    needs_base = True
    needs_mirror = True

    class State(NamedTuple):
        proto: Tensor  # (N, D)
        negative: Tensor  # (J, D)

    def __init__(
        self,
        dim: int,
        *,
        negatives: int = 5,
        epochs: int = 50,
        alignment_weight: float = 0.3,
        scale: float = 10.0,
        offset: bool = True,
        dropout: float = 0.1,
        open_score: str = "negative",
    ):
        super().__init__()
        if negatives < 1 or epochs < 1:
            raise RecipeError(f"negatives and epochs must be at least 1, got {negatives} and {epochs}")
        self.epochs = epochs
        self.alignment_weight = check_weight("alignment_weight", alignment_weight)
        self.like, self.unlike = BaseRows(dim, learned=True), BaseRows(dim, learned=True)  # c_b, o_b
        names = ("query", "key", "value", "unlike_value", "out", "unlike_out")
        self.attention = nn.ModuleDict({name: nn.Linear(dim, dim, bias=False) for name in names})
        for name, layer in self.attention.items():
            if name.endswith("out"):
                nn.init.xavier_normal_(layer.weight)  # type: ignore[arg-type]
            else:
                nn.init.normal_(layer.weight, std=1 / math.sqrt(dim))  # type: ignore[arg-type]
        self.dropout = nn.Dropout(dropout)
        self.generate = nn.ModuleList(negative_mlp(dim) for _ in range(negatives))
        self.scales = nn.Parameter(torch.full((3,), check_positive("scale", float(scale))))  # τ1, τ2, τ3
        self.offset = nn.Parameter(torch.zeros(()), requires_grad=offset)
        self.choose_score(open_score)

    def set_base(self, base: BaseClasses) -> None:
        vec, label = base.images()
        fitted = BaseFit(len(base.names), vec.shape[1]).to(vec)
        fitted.run(vec, label, self.epochs)
        self.like.fill(START * fitted.like)
        self.unlike.fill(START * fitted.unlike.mean(dim=1))

    def envision(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Prototypes p_n and what is unlike each, r_n: (N, D) each."""
        # Only in training does ``drawn`` count base classes; later it counts those of another split.
        hidden, layer = drawn if self.training else (), self.attention
        mean, like, unlike = class_mean(support.vec, one_hot), self.like(hidden), self.unlike(hidden)
        affinity = layer["query"](mean) @ layer["key"](like).mT / math.sqrt(mean.shape[-1])
        attention = self.dropout(affinity.softmax(dim=-1))  # (N, B)
        proto = mean + self.dropout(layer["out"](attention @ layer["value"](like)))
        return proto, self.dropout(layer["unlike_out"](attention @ layer["unlike_value"](unlike)))

    def negatives(self, unlike: Tensor) -> Tensor:
        """r_n (N, D) -> m_j (J, D)."""
        return torch.stack([generate(unlike.mean(dim=0)) for generate in self.generate])

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        proto, unlike = self.envision(support, one_hot, drawn)
        return self.State(proto, self.negatives(unlike))

    def similarity(self, state: Any, query: Views) -> Tensor:
        """(Q, N + 1), the last column that of the unknown."""
        known = self.scales[0] * cosine(query.vec, state.proto)
        unknown = (self.scales[1] * cosine(query.vec, state.negative)).amax(dim=1, keepdim=True)
        return torch.cat([known, unknown + self.offset], dim=1)

    def compare(self, state: Any, query: Views) -> Comparison:
        similarity = self.similarity(state, query)
        return Comparison(similarity[:, :-1], {"negative": lambda: similarity.softmax(dim=-1)[:, -1]})

    def loss(self, episode: Episode) -> dict[str, Tensor]:
        sides = [episode] if episode.mirror_support is None else [episode, episode.mirrored()]
        states, classes, negatives = zip(*map(self.side, sides), strict=True)
        terms = {"classes": torch.stack(classes).sum(), "negatives": torch.stack(negatives).sum()}
        if self.alignment_weight and len(states) == 2:
            terms["alignment"] = self.alignment_weight * swap_alignment(*states)
        return terms

    def side(self, episode: Episode) -> tuple[Any, Tensor, Tensor]:
        """State, cross-entropy over N + 1 classes and binary cross-entropy of the r_n, of one side of the task."""
        support, query = self.views(episode)
        proto, unlike = self.envision(support, episode.support_one_hot, episode.drawn)
        state = self.State(proto, self.negatives(unlike))
        label = torch.where(episode.known, episode.query_label, len(proto))
        away = 1 - self.scales[2] * cosine(query.vec, unlike)  # (Q, N)
        own = to_one_hot(episode.query_label, len(proto)).to(away)
        classes = known_cross_entropy(self.similarity(state, query), label)
        return state, classes, F.binary_cross_entropy_with_logits(away, own)


def swap_alignment(one: Any, other: Any) -> Tensor:
    """L_SA of the states of both sides: the same when they are exchanged."""
    both = [cosine(b.negative, a.proto) for a, b in ((one, other), (other, one))]  # (J, N) each
    return -torch.stack([c.amax(dim=1).mean() + c.amax(dim=0).mean() for c in both]).sum() / 2


class BaseFit(nn.Module):
    """What each base class is like, c_b, and unlike, four rows a_bj whose mean is o_b, learned from embeddings x.

    For c: cross-entropy of softmax over b of -||x - c_b||² / (0.07 D), and 0.05 times the mean square of x - c_y.
    For a: cross-entropy of +mean_j ||x - a_bj||² / (0.07 D), and 0.1 (mean square of x - a_yj, less a learned radius)².
    """

    def __init__(self, n_class: int, dim: int, *, rows: int = 4):
        super().__init__()
        self.like = nn.Parameter(0.1 * torch.randn(n_class, dim))
        self.unlike = nn.Parameter(0.1 * torch.randn(n_class, rows, dim))
        self.radius = nn.Parameter(torch.ones(()))

    def loss(self, x: Tensor, label: Tensor) -> Tensor:
        """x (B, D), label (B,) -> ()."""
        near = squares(x, self.like) / x.shape[1]  # (B, N) mean squares
        far = squares(x, self.unlike.flatten(0, 1)).view(len(x), *self.unlike.shape[:2]).mean(dim=2) / x.shape[1]
        own = label[:, None]
        attract = F.cross_entropy(-near / 0.07, label) + 0.05 * near.gather(1, own).mean()
        repel = F.cross_entropy(far / 0.07, label) + 0.1 * (far.gather(1, own) - self.radius).square().mean()
        return attract + repel

    def run(self, x: Tensor, label: Tensor, epochs: int) -> None:
        """Adam 0.05, batches of 128, as published."""
        optimiser = torch.optim.Adam(self.parameters(), lr=0.05)
        with torch.enable_grad():
            for _ in range(epochs):
                for rows in torch.split(torch.randperm(len(x)), 128):
                    optimiser.zero_grad()
                    self.loss(x[rows], label[rows]).backward()  # type: ignore[no-untyped-call]
                    optimiser.step()


def squares(x: Tensor, rows: Tensor) -> Tensor:
    """Squared distances: x (B, D), rows (R, D) -> (B, R)."""
    return x.square().sum(dim=1, keepdim=True) + rows.square().sum(dim=1) - 2 * x @ rows.mT
