r"""ASCM: GEL whose prototypes are shifted by the pixels of each class that are most like all classes.

With GEL's attended prototypes :math:`p_n` and the mean maps :math:`F_n` of the classes, neither calibrated:

.. math:: u_{nm} = \arg\max_u \Big\langle F_{n,u}, \sum_v F_{m,v} \Big\rangle, \qquad
    w_{nm} = \mathrm{softmax}_m \cos(p_n, p_m)

.. math:: p^*_n = p_n + 0.1\,\sigma\Big(\sum_m w_{nm} F_{n,u_{nm}}\Big)

Everything else is GEL's, with s_f of the raw maps.  A third loss, ``similarity_weight`` times :math:`L_x`, is taken on
all embeddings of the task, unknown classes and their support included.  With cosines c, :math:`D = (2 - 2c)_+` and
:math:`D_i^{(k)}` the k-th smallest of row i:

.. math:: M_{ij} = [D_{ij} \le D_i^{(\kappa)} + 0.05], \quad H_{ij} = [D_{ij} \le D_i^{(\lfloor\kappa/2\rfloor)} + 0.05]

.. math:: A = \tfrac12 \Big(\frac{M M^T}{|M_i|} + \frac{\bar M \bar M^T}{|\bar M_i|}\Big) \odot M, \quad \bar M = 1 - M,
    \quad R = H \odot H^T, \quad J = \frac{R A}{|R_i|} \text{ made symmetric}

.. math:: L_x = \frac{0.4}{B^2} \sum_{i \ne j} (y_{ij} - J_{ij})^2 + 0.1\,(\bar c - 0.25)^2 + 0.5\,L_m

y is 1 within a class; :math:`L_m` is the mean excess of 0.75 - c within classes plus that of c - 0.6 between them.
Each bracket passes the gradient -10 to D.  ``neighbours`` is κ; the program has ``top_k`` 10.

This is a **reconstruction**: the paper could not be read, only its program, which documents miniImageNet alone.

Differs from the paper: λ is 0.7 as the program's notes say, not its default 1.  On a frozen backbone :math:`L_x` has
nothing to move.

>>> import torch
>>> from glocal.research.types import Episode
>>> _ = torch.manual_seed(0)
>>> method = ASCM(8).eval()
>>> task = Episode(torch.randn(2, 8, 3, 3), torch.tensor([0, 1]), torch.randn(4, 8, 3, 3), torch.tensor([0, 1, 1, -1]))
>>> [tuple(x.shape) for x in method(task)], sorted(method.loss(task))
([(4, 2), (4,)], ['closed', 'energy', 'similarity'])
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from glocal.common.errors import RecipeError
from glocal.research.methods.base import Comparison, MethodCard, check_weight
from glocal.research.methods.gel import GEL
from glocal.research.ops.similarity import cosine, pool
from glocal.research.types import Episode, Views

SLACK = 0.05  # beyond the k-th neighbour
SLOPE = 10.0  # of a bracket, as its gradient has it


class ASCM(GEL):
    card = MethodCard(
        "ASCM",
        learns="attention over the prototypes",
        reconstruction="its paper could not be read; built from what its program computes",
    )

    def __init__(
        self,
        dim: int,
        *,
        shift: float = 0.1,
        similarity_weight: float = 0.7,
        neighbours: int = 5,
        top_k: int = 1,
        energy_weight: float = 0.1,
        m_known: float = -1.0,
        m_unknown: float = 1.0,
        temperature: float | None = None,
        dropout: float = 0.5,
        attention_dropout: float = 0.1,
        open_score: str | None = None,
    ):
        super().__init__(
            dim,
            top_k=top_k,
            energy_weight=energy_weight,
            m_known=m_known,
            m_unknown=m_unknown,
            temperature=temperature,
            dropout=dropout,
            attention_dropout=attention_dropout,
        )
        if neighbours < 2:
            raise RecipeError(f"neighbours must be at least 2 (an image and its nearest), got {neighbours}")
        self.shift = check_weight("shift", shift)
        self.similarity_weight = check_weight("similarity_weight", similarity_weight)
        self.neighbours, self.needs_mirror = neighbours, similarity_weight > 0
        self.calibrate = None
        self.score_names = tuple(name for name in self.score_names if "snatcher" not in name)  # it would see the shift
        self.choose_score(open_score or "E")

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        state = super().enroll(support, one_hot, drawn)
        if not self.shift:
            return state
        return state._replace(proto=state.proto + self.shift * salient(state.proto, state.local).sigmoid())

    def compare(self, state: Any, query: Views) -> Comparison:
        comparison = super().compare(state, query)
        functions = comparison.scores.functions
        return Comparison(comparison.logits, {name: functions[name] for name in self.score_names})

    def loss(self, episode: Episode) -> dict[str, Tensor]:
        terms = super().loss(episode)
        if self.similarity_weight:
            vec, label = labelled(episode)
            terms["similarity"] = self.similarity_weight * neighbourhood_loss(vec, label, self.neighbours)
        return terms


def salient(proto: Tensor, class_map: Tensor) -> Tensor:
    """Σ_m w_nm F_n[u_nm]: prototypes (N, D), class maps (N, D, H, W) -> (N, D).  The choice of u has no gradient."""
    pixel = class_map.flatten(2).mT  # (N, P, D)
    best = torch.einsum("nud,md->nmu", pixel, pixel.sum(dim=1)).argmax(dim=2)  # (N, N)
    chosen = pixel.gather(1, best[:, :, None].expand(-1, -1, pixel.shape[2]))  # (N, N, D)
    return torch.einsum("nm,nmd->nd", cosine(proto, proto).softmax(dim=1), chosen)


def labelled(episode: Episode) -> tuple[Tensor, Tensor]:
    """Embeddings and classes of a task's images of known class; the unknown classes come behind the others."""
    label = episode.query_label
    if episode.mirror_query_label is not None:
        label = torch.where(episode.known, label, episode.n_way + episode.mirror_query_label)
    maps, labels = [episode.support, episode.query[label >= 0]], [episode.support_label, label[label >= 0]]
    if episode.mirror_support is not None and episode.mirror_support_label is not None:
        maps.append(episode.mirror_support)
        labels.append(episode.n_way + episode.mirror_support_label)
    return pool(torch.cat(maps)), torch.cat(labels)


def neighbourhood_loss(vec: Tensor, label: Tensor, neighbours: int) -> Tensor:
    """L_x of embeddings (B, D) and their classes (B,) -> ()."""
    c, same = cosine(vec, vec), (label[:, None] == label).to(vec)
    near, half = (within(c, k) for k in (neighbours, neighbours // 2))
    far = 1 - near
    alike = near @ near.mT / size(near) + far @ far.mT / size(far)
    mutual = half * half.mT
    context = mutual @ (alike / 2 * near) / size(mutual)
    context = (context + context.mT) / 2
    apart = 1 - torch.eye(len(vec)).to(vec)
    shape = (apart * (same - context).square()).sum() / len(vec) ** 2
    margin = positive_mean(same * (0.75 - c)) + positive_mean((1 - same) * (c - 0.6))
    return 0.4 * shape + 0.1 * (c.mean() - 0.25).square() + 0.5 * margin


def within(c: Tensor, k: int) -> Tensor:
    """[D_ij <= D_i^(k) + slack] of cosines (B, B), whose gradient to D is -10."""
    d = (2 - 2 * c).relu()
    limit = d.detach().kthvalue(min(k, len(d)), dim=1, keepdim=True).values + SLACK
    return (d <= limit).to(d) - SLOPE * (d - d.detach())


def size(rows: Tensor) -> Tensor:
    """How many each row has, at least 1, without a gradient: (B, B) -> (B, 1)."""
    return rows.detach().sum(dim=1, keepdim=True).clamp_min(1)


def positive_mean(x: Tensor) -> Tensor:
    """Mean of what is above 0, 0 when nothing is."""
    above = x.relu()
    return above.sum() / (above > 0).sum().clamp_min(1)
