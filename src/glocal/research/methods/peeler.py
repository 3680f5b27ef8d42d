r"""Liu et al. 2020, PEELER: pseudo-unknown queries are trained to look alike to every class.

Loss: cross-entropy of softmax(s) on known queries, minus ``open_weight`` = 0.5 times its mean entropy on unknown
queries.  A third term is ``auxiliary_weight`` times the cross-entropy of support and known queries over base classes.

``variant="gaussian"``, the full model: a class is a Gaussian whose precision A_n weighs every pixel and channel.

.. math:: g = \mathrm{mean}_i\, L_0(\sigma_i), \quad A_i = L_1([\sigma_i; g]), \quad A_n, \mu_n = \text{class means}

.. math:: d_n(q) = \lVert \mathrm{GAP}(q \odot A_n) - \mathrm{GAP}(\mu_n \odot A_n) \rVert, \qquad s_n = -d_n / T

with i over all support images, :math:`L_0, L_1` two residual blocks each, and T = 1.  With ``early_channels`` = E, σ
comes from the stage before the last, by a last stage like ResNet-18's, as in the paper.  The backbone then has
``stages = [3, 4]``; E is 320 for resnet12 at full width, 256 for resnet18.
Open score: "peeler" = :math:`\min_n \mathrm{softmax}(-s)_n`, near 0 beside a class and 1/N at equal distance from all.

``variant="prototype"``, the row "PEELER*" on ResNet-12 in the GEL paper: **a reconstruction**, it has no program.
Class means, :math:`s_n = -\lVert q - p_n \rVert^2 / T` with T = 64, the same loss; open score: entropy.  On a frozen
backbone it learns ``adapter`` alone: x + W x for every embedding, W = 0 at the start.

Differs from the paper: its weight of the auxiliary term falls from .5 to 0; ours is the mean of these, .17.  The
term sees the task's own images and not 75 others.  Its classifier is :math:`-\lVert x - w_b \rVert^2 / T_b`, linear up
to a shared term, with w_b started at the class means.  **Without** ``early_channels`` **σ comes from the final maps, by
a 1x1 convolution**, so that any backbone will do.  A 1x1 convolution, 1 + W x with W = 0 at the start, brings A to the
channels of the maps.  L_0 and L_1 have group norm, not batch norm.  They and σ have ``sigma_channels``, 512 in the
paper.  We train by SGD, the paper by Adam.  The published score averages ten crops of a query; ours sees one.

>>> import torch
>>> from glocal.research.types import Episode
>>> _ = torch.manual_seed(0)
>>> method = Peeler(8, variant="gaussian", auxiliary_weight=0).eval()
>>> task = Episode(torch.randn(2, 8, 3, 3), torch.tensor([0, 1]), torch.randn(4, 8, 3, 3), torch.tensor([0, 1, 1, -1]))
>>> [tuple(x.shape) for x in method(task)], sorted(method.loss(task))
([(4, 2), (4,)], ['closed', 'open'])
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glocal.common.errors import RecipeError
from glocal.research.methods.base import (
    TEMPERATURES,
    Comparison,
    Method,
    MethodCard,
    Paper,
    check_choice,
    check_positive,
    check_weight,
    known_cross_entropy,
)
from glocal.research.methods.blocks import BaseRows, ResidualLinear
from glocal.research.ops.batch_norm import BatchNorm2d
from glocal.research.ops.open_scores import entropy
from glocal.research.ops.packing import last_channels, unpack
from glocal.research.ops.similarity import class_mean, in_turns, neg_sq_euclidean, pool
from glocal.research.types import BaseClasses, Episode, Views

WEIGHED_FLOATS = 2**22  # numbers of weighed queries held at once: 16 MiB in float32


class PeelerVariant(NamedTuple):
    temperature: float
    open_score: str


VARIANTS = {
    "prototype": PeelerVariant(TEMPERATURES["sq-euclidean"], "entropy"),
    "gaussian": PeelerVariant(TEMPERATURES["euclidean"], "peeler"),
}


class ClassMeans(NamedTuple):
    proto: Tensor  # (N, C)


class Gaussians(NamedTuple):
    mean: Tensor  # (N, C) GAP(μ ⊙ A)
    precision: Tensor  # (N, C, H, W) A


class Peeler(Method):
    card = MethodCard(
        "PEELER",
        Paper("Liu et al.", "Few-Shot Open-Set Recognition using Meta-Learning", "CVPR", 2020, "2005.13713"),
        ("peeler",),
        learns="a vector per base class, for the auxiliary loss; on request an adapter or the classes' precisions",
        reconstruction='variant "prototype", the default, is the ResNet-12 row of the tables; no program of it exists',
    )
    own_scores = ("peeler",)

    def __init__(
        self,
        dim: int,
        *,
        variant: str = "prototype",
        temperature: float | None = None,
        open_weight: float = 0.5,
        auxiliary_weight: float = 0.17,
        auxiliary_temperature: float = 64.0,
        sigma_channels: int = 128,
        early_channels: int = 0,
        adapter: bool = False,
        open_score: str | None = None,
    ):
        super().__init__()
        chosen = VARIANTS[check_choice("variant", variant, VARIANTS)]
        self.temperature = check_positive("temperature", chosen.temperature if temperature is None else temperature)
        self.open_weight = check_weight("open_weight", open_weight)
        self.auxiliary_weight = check_weight("auxiliary_weight", auxiliary_weight)
        self.auxiliary_temperature = check_positive("auxiliary_temperature", auxiliary_temperature)
        if sigma_channels < 1:
            raise RecipeError(f"sigma_channels must be at least 1, got {sigma_channels}")
        if early_channels and variant != "gaussian":
            raise RecipeError(f'early_channels is for variant = "gaussian", got {early_channels} with {variant!r}')
        self.channels, self.early_channels = last_channels(dim, early_channels), early_channels
        self.adapter = ResidualLinear(self.channels) if adapter else nn.Identity()
        self.sigma = SecondLastStage(early_channels, sigma_channels) if early_channels else None
        self.precision = None
        if variant == "gaussian":
            self.precision = Precision(self.channels, sigma_channels, reduce=self.sigma is None)
        self.pooled = variant != "gaussian"
        self.State = Gaussians if variant == "gaussian" else ClassMeans
        self.base = BaseRows(self.channels, learned=True) if auxiliary_weight else None
        self.needs_base = self.base is not None
        self.choose_score(open_score or chosen.open_score)

    def set_base(self, base: BaseClasses) -> None:
        if self.base is not None:
            self.base.fill(base.centre[:, : self.channels])

    def embed(self, maps: Tensor) -> Views:
        if self.precision is None:
            return Views(self.adapter(pool(maps)))
        final, early = unpack(maps, self.early_channels)
        local = self.adapter(final.movedim(1, -1)).movedim(-1, 1)
        return Views(pool(local), local if self.sigma is None else torch.cat([local, self.sigma(early)], dim=1))

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        if self.precision is None or support.local is None:
            return ClassMeans(class_mean(support.vec, one_hot))
        final, sigma = support.local[:, : self.channels], support.local[:, self.channels :]
        precision = class_mean(self.precision(final if self.sigma is None else sigma), one_hot)
        return Gaussians(pool(class_mean(final, one_hot) * precision), precision)

    def compare(self, state: Any, query: Views) -> Comparison:
        if query.local is None:
            logits = neg_sq_euclidean(query.vec, state.proto) / self.temperature
        else:
            final = query.local[:, : self.channels]
            logits = -weighed_distance(final, state.mean, state.precision) / self.temperature
        return Comparison(logits, {"peeler": lambda: logits.neg().softmax(dim=-1).amin(dim=-1)})

    def loss(self, episode: Episode) -> dict[str, Tensor]:
        support, query = self.views(episode)
        logits = self.compare(self.enroll(support, episode.support_one_hot, episode.drawn), query).logits
        known = episode.known
        terms = {"closed": known_cross_entropy(logits, episode.query_label)}
        if self.open_weight:
            doubtful = entropy(logits[~known])
            terms["open"] = -self.open_weight * doubtful.sum() / max(1, len(doubtful))
        if self.base is not None and episode.drawn:
            vec = torch.cat([support.vec, query.vec[known]])
            label = torch.cat([episode.support_label, episode.query_label[known]])
            own = torch.tensor(episode.drawn, device=label.device)[label]
            logits = neg_sq_euclidean(vec, self.base()) / self.auxiliary_temperature
            terms["auxiliary"] = self.auxiliary_weight * known_cross_entropy(logits, own)
        return terms


def weighed_distance(query: Tensor, mean: Tensor, precision: Tensor) -> Tensor:
    """||GAP(q ⊙ A_n) - m_n||: query (Q, C, H, W), mean (N, C), precision (N, C, H, W) -> (Q, N).

    Queries are taken in turns, so memory does not grow with their number.
    """
    n_pixel = precision.shape[2] * precision.shape[3]

    def distance(some: Tensor) -> Tensor:
        weighed = torch.einsum("qchw,nchw->qnc", some, precision) / n_pixel
        length: Tensor = torch.linalg.vector_norm(weighed - mean, dim=-1)
        return length

    return in_turns(distance, query, step=lambda: WEIGHED_FLOATS // max(1, mean.numel()))


class Precision(nn.Module):
    """A_i of each support image from all of them: (S, inside, H, W) -> (S, dim, H, W), not negative, 1 at the start.

    ``reduce``: final maps come in, and a 1x1 convolution makes σ of them; otherwise σ itself, of ``width`` channels.
    """

    def __init__(self, dim: int, width: int, *, reduce: bool = True):
        super().__init__()
        self.sigma = nn.Sequential()  # the identity, without an entry in the state dict
        if reduce:
            self.sigma = nn.Sequential(nn.Conv2d(dim, width, 1, bias=False), nn.GroupNorm(1, width), nn.ReLU())
        self.l0 = nn.Sequential(PeelerBlock(width, width), PeelerBlock(width, width))
        self.l1 = nn.Sequential(PeelerBlock(2 * width, width), PeelerBlock(width, width))
        self.expand = nn.Conv2d(width, dim, 1, bias=False)
        nn.init.zeros_(self.expand.weight)

    def forward(self, maps: Tensor) -> Tensor:
        sigma = self.sigma(maps)
        task = self.l0(sigma).mean(dim=0, keepdim=True).expand_as(sigma)  # g
        precision: Tensor = (1 + self.expand(self.l1(torch.cat([sigma, task], dim=1)))).relu()
        return precision


class SecondLastStage(nn.Sequential):
    """σ from the maps of the stage before the last: (B, inside, 2H, 2W) -> (B, width, H, W), as ResNet-18's stage 4.

    It has batch norm, so it runs in a method's ``embed``.
    """

    def __init__(self, inside: int, width: int):
        super().__init__(
            PeelerBlock(inside, width, stride=2, batch_norm=True), PeelerBlock(width, width, batch_norm=True)
        )


class PeelerBlock(nn.Module):
    """ReLU(x + norm(conv(ReLU(norm(conv(x)))))), 3x3; a 1x1 convolution on x when its shape changes.

    Group norm, for what runs once per task; with ``batch_norm`` as in ResNet-18, where x is normed too if convolved.
    """

    def __init__(self, inside: int, outside: int, *, stride: int = 1, batch_norm: bool = False):
        super().__init__()
        norm = BatchNorm2d if batch_norm else partial(nn.GroupNorm, 1)
        self.conv1, self.norm1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False), norm(outside)
        self.conv2, self.norm2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False), norm(outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inside != outside:
            self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False)
            if batch_norm:
                self.shortcut = nn.Sequential(self.shortcut, norm(outside))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        out: Tensor = (self.shortcut(x) + y).relu()
        return out
