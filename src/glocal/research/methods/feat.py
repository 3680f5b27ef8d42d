r"""Ye et al. 2020, FEAT: prototypes look at each other before queries are compared with them.

.. math:: P^* = \mathrm{LN}(P + W_o\,\mathrm{Attn}(P)), \qquad s_n(q) = -\lVert q - p^*_n \rVert^2 / T

Loss: CE(s) on known queries + β CE_reg.  CE_reg runs the same attention over all support and query embeddings of each
class.  Their mean is the centre :math:`c_n`; all are classified by :math:`-\lVert x - c_n \rVert^2 / T_2`.
Open score: entropy of softmax(s), as published; any other of ``OPEN_SCORES`` by name.

Published settings for 1 and 5 shots:

==============  =======  ==================
data            β        T, T2
==============  =======  ==================
miniImageNet    .01, .1  64, 64 and 64, 32
tieredImageNet  .1, .1   64, 64 and 32, 64
==============  =======  ==================

CIFAR-FS was not published; miniImageNet's are used.

Differs from the paper: classes may have unequal numbers of images, and unknown queries take no part in the loss.
``adapter`` adds x + W x, W = 0 at the start, to the embedding: the one freedom that helps on a frozen backbone.
``gentle_attention`` leaves LN out and starts with W_o = 0, that is, with prototypes.  A few hundred tasks improve on
these; after so few the random start of the published form still decides the result.

>>> import torch
>>> from glocal.research.types import Episode
>>> _ = torch.manual_seed(0)
>>> method = FEAT(8, temperature=8.0).eval()
>>> task = Episode(torch.randn(2, 8, 3, 3), torch.tensor([0, 1]), torch.randn(4, 8, 3, 3), torch.tensor([0, 1, 1, -1]))
>>> [tuple(x.shape) for x in method(task)], sorted(method.loss(task))
([(4, 2), (4,)], ['closed', 'contrast'])
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from glocal.research.methods.base import (
    Comparison,
    Method,
    MethodCard,
    Paper,
    check_positive,
    check_weight,
    known_cross_entropy,
)
from glocal.research.methods.blocks import ResidualLinear, SetAttention
from glocal.research.ops.similarity import class_mean, neg_sq_euclidean, pool
from glocal.research.types import Episode, Views, to_one_hot


class FEAT(Method):
    card = MethodCard(
        "FEAT",
        Paper(
            "Ye et al.",
            "Few-Shot Learning via Embedding Adaptation with Set-to-Set Functions",
            "CVPR",
            2020,
            "1812.03664",
        ),
        ("feat",),
        learns="attention over the prototypes",
    )

    class State(NamedTuple):
        proto: Tensor  # (N, D) adapted class means

    published_score: ClassVar[str] = "entropy"

    def __init__(
        self,
        dim: int,
        *,
        temperature: float = 64.0,
        contrast_weight: float = 0.01,
        contrast_temperature: float = 64.0,
        dropout: float = 0.5,
        attention_dropout: float = 0.1,
        gentle_attention: bool = False,
        adapter: bool = False,
        open_score: str | None = None,
    ):
        super().__init__()
        self.attend = SetAttention(dim, dropout=dropout, attention_dropout=attention_dropout, gentle=gentle_attention)
        self.adapter = ResidualLinear(dim) if adapter else nn.Identity()
        self.temperature = check_positive("temperature", temperature)
        self.contrast_weight = check_weight("contrast_weight", contrast_weight)
        self.contrast_temperature = check_positive("contrast_temperature", contrast_temperature)
        self.choose_score(open_score or self.published_score)

    pooled = True

    def embed(self, maps: Tensor) -> Views:
        return Views(self.adapter(pool(maps)))

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        return self.State(self.attend(class_mean(support.vec, one_hot)))

    def compare(self, state: Any, query: Views) -> Comparison:
        return Comparison(neg_sq_euclidean(query.vec, state.proto) / self.temperature)

    def loss(self, episode: Episode) -> dict[str, Tensor]:
        support, query = self.views(episode)
        state = self.enroll(support, episode.support_one_hot, episode.drawn)
        terms = {"closed": known_cross_entropy(self.compare(state, query).logits, episode.query_label)}
        if self.contrast_weight:
            known = episode.known
            x = torch.cat([support.vec, query.vec[known]])
            label = torch.cat([episode.support_label, episode.query_label[known]])
            terms["contrast"] = self.contrast_weight * self.contrast(x, label)
        return terms

    def contrast(self, x: Tensor, label: Tensor) -> Tensor:
        """CE_reg of all embeddings x (B, D) of the known classes, label (B,) -> ()."""
        same = label[:, None] == label  # attention stays within a class
        centre = class_mean(self.attend(x, same), to_one_hot(label))  # (N, D)
        return known_cross_entropy(neg_sq_euclidean(x, centre) / self.contrast_temperature, label)
