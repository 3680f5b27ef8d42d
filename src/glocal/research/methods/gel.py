r"""Wang et al. 2023, Glocal Energy-based Learning (GEL): global and local similarity, judged by one energy.

Class-wise branch: prototypes adapted by attention, :math:`s_c = -\lVert e - p^* \rVert^2 / T_c` (eq. 4).
Pixel-wise branch: calibrated maps, class maps by their mean, :math:`s_f` = top-k cosines summed over pixels (eq. 9).

.. math:: E_c = -\log\sum_n e^{s_c}, \quad E_f = -\log\sum_n e^{s_f}, \quad E = a E_c + b E_f \quad (eqs. 13-15)

Classification uses s_c alone, the open decision E alone.  Loss: :math:`L = L_c + \lambda L_e` (eq. 12), L_c the
cross-entropy of softmax(s_c) on known queries and L_e the squared margin loss of an energy (``energy_margin``).

``variant``, the rows of the paper's ablation, with the energy in the loss and the open score:

===========  ====  ========  ======================================================
variant      loss  score     in the paper
===========  ====  ========  ======================================================
baseline     none  snatcher  Baseline: attention and SnaTCHer-F's score
energy-maps  E_m   E_m       + Energy Loss, "w/o Pix", as the authors' program ran it
energy       E_c   E_c       the same row as the text reads
pixel        E_f   E_f       + Pixel wise (our reading)
delay        E_f   delay     Delay Combine: E_f - max_n s_c, combined after training
ahead        E     E         + Combine = Ahead Combine: the full GEL
===========  ====  ========  ======================================================

.. math:: E_m = -\log\sum_n e^{-\lVert f - f_n \rVert^2 / T_m}, \qquad f_n \text{ the mean of the class's maps}

is the energy of maps that are neither calibrated nor compared by pixels; ``map_temperature`` is T_m.

Every variant reports what the authors' program prints: energy, smallest distance and their sum, and the same with
SnaTCHer's movement in place of the distance.  ``open_score`` names one of these, E_c, or any of ``OPEN_SCORES``.
``reduce``: a stride-2 1x1 convolution and BN before maps are compared, for the 11x11 maps of ResNet-18.  The embedding
is the mean of the unreduced map.  ``coefficients`` a, b: fixed; two learnable numbers; or task-adaptive, a linear layer
on the mean of the prototypes.  All start at 1.  The authors' ``top_k`` for 1 and 5 shots: 10, 1 on miniImageNet.
TieredImageNet: 2, 5.  CIFAR-FS: 1, 1.

Differs from the paper: where its text and Algorithm 2 disagree on the energy loss (sign, square, mean), the algorithm
counts.  Attention has the output layer, residual and LayerNorm that eq. 3 leaves out.  Maps are calibrated before the
class mean.  What we add for frozen backbones is a method of its own, ``frozen-gel``.

>>> import torch
>>> from glocal.research.types import Episode
>>> _ = torch.manual_seed(0)
>>> method = GEL(8, top_k=4, temperature=8.0).eval()
>>> task = Episode(torch.randn(2, 8, 3, 3), torch.tensor([0, 1]), torch.randn(4, 8, 3, 3), torch.tensor([0, 1, 1, -1]))
>>> [tuple(x.shape) for x in method(task)], sorted(method.loss(task))
([(4, 2), (4,)], ['closed', 'energy'])
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
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
from glocal.research.methods.blocks import Halving, ScaleCalibration, SetAttention
from glocal.research.methods.snatcher import SnaTCHerF, movement
from glocal.research.ops.open_scores import OPEN_SCORES, energy, energy_margin
from glocal.research.ops.open_scores import distance as smallest_distance
from glocal.research.ops.similarity import SIMILARITIES, class_mean, neg_sq_euclidean, pixel_similarity, pool
from glocal.research.types import Episode, Views


class GELVariant(NamedTuple):
    trained: str | None  # the energy in the loss
    open_score: str
    pixel: bool = False  # has the pixel-wise branch
    maps: bool = False  # compares maps as they are

    @property
    def local(self) -> bool:
        return self.pixel or self.maps

    @property
    def energies(self) -> tuple[str, ...]:
        """Those of maps."""
        return ("E_f", "E") if self.pixel else ("E_m",) * self.maps


VARIANTS = {
    "baseline": GELVariant(None, "snatcher"),
    "energy": GELVariant("E_c", "E_c"),
    "energy-maps": GELVariant("E_m", "E_m", maps=True),
    "pixel": GELVariant("E_f", "E_f", pixel=True),
    "delay": GELVariant("E_f", "delay", pixel=True),
    "ahead": GELVariant("E", "E", pixel=True),
}
COEFFICIENTS = ("fixed", "learnable", "task-adaptive")


class GEL(Method):
    card = MethodCard(
        "GEL",
        Paper(
            "Wang et al.",
            "Glocal Energy-based Learning for Few-Shot Open-Set Recognition",
            "CVPR",
            2023,
            arxiv="2304.11855",
            doi="10.1109/CVPR52729.2023.00725",
        ),
        ("gel", *(f"gel/{row}" for row in (*VARIANTS, *COEFFICIENTS) if row != "energy")),
        learns="attention over the prototypes, and the calibration of the maps",
    )

    class State(NamedTuple):
        proto: Tensor  # (N, D) adapted class means
        raw: Tensor  # (N, D) class means
        local: Tensor  # (N, D/2, H, W) calibrated class maps; (N, D, H, W) as they are for energy-maps
        coefficient: Tensor  # (2,) of E_c and E_f

    def __init__(
        self,
        dim: int,
        *,
        variant: str = "ahead",
        top_k: int = 1,
        coefficients: str = "fixed",
        energy_weight: float = 0.1,
        m_known: float = -1.0,
        m_unknown: float = 1.0,
        distance: str = "sq-euclidean",
        temperature: float | None = None,
        map_temperature: float = 640.0,
        reduce: bool = False,
        dropout: float = 0.5,
        attention_dropout: float = 0.1,
        open_score: str | None = None,
    ):
        super().__init__()
        self.variant = VARIANTS[check_choice("variant", variant, VARIANTS)]
        self.distance = check_choice("distance", distance, SIMILARITIES)
        self.temperature = check_positive("temperature", TEMPERATURES[distance] if temperature is None else temperature)
        self.map_temperature = check_positive("map_temperature", map_temperature)
        self.energy_weight = check_weight("energy_weight", energy_weight)
        if m_known > m_unknown:
            raise RecipeError(f"m_known must not exceed m_unknown, got {m_known} and {m_unknown}")
        self.margins = (m_known, m_unknown)
        if top_k < 1:
            raise RecipeError(f"top_k must be at least 1 (pixels of one class map), got {top_k}")
        self.top_k = top_k
        sums = [name for energy in self.variant.energies for name in (energy, *sums_of(energy))]
        self.score_names = ("snatcher", "E_c", *sums, *OPEN_SCORES)
        self.choose_score(open_score or self.variant.open_score)
        if reduce and not self.variant.local:
            raise RecipeError(f"reduce = true is for variants that compare maps, {variant!r} compares none; drop it")
        self.pooled = not self.variant.local
        if not self.variant.local:  # a task then keeps what SnaTCHer-F keeps
            self.State = SnaTCHerF.State  # type: ignore[assignment, misc]
        if check_choice("coefficients", coefficients, COEFFICIENTS) != "fixed" and variant != "ahead":
            raise RecipeError(
                f"coefficients = {coefficients!r} needs variant 'ahead', which alone adds energies, got {variant!r}"
            )
        self.attend = SetAttention(dim, dropout=dropout, attention_dropout=attention_dropout)
        self.calibrate = ScaleCalibration(dim) if self.variant.pixel else None
        if self.calibrate is not None:  # as the authors start it
            nn.init.kaiming_normal_(self.calibrate.conv.weight, mode="fan_out", nonlinearity="leaky_relu")
        self.coefficient = Coefficients(dim, coefficients)
        self.reduce = Halving(dim) if reduce else None

    def embed(self, maps: Tensor) -> Views:
        return Views(pool(maps), self.local(maps))

    def views(self, episode: Episode) -> tuple[Views, Views]:
        """The mirrored support, which ``train.unknown_support`` draws, is embedded with them and left out: its batch
        norm sees what the authors' sees."""
        if episode.mirror_support is None:
            return super().views(episode)
        n, end = len(episode.support), len(episode.support) + len(episode.query)
        views = self.embed(torch.cat([episode.support, episode.query, episode.mirror_support]))
        return views.rows(slice(n)), views.rows(slice(n, end))

    def local(self, maps: Tensor) -> Tensor | None:
        """What of a map is compared with class maps, if anything is."""
        if not self.variant.local:
            return None
        maps = maps if self.reduce is None else self.reduce(maps)
        return maps if self.calibrate is None else self.calibrate(maps)

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        raw = class_mean(support.vec, one_hot)
        proto = self.attend(raw)
        if support.local is None:
            return SnaTCHerF.State(proto, raw)
        return self.State(proto, raw, class_mean(support.local, one_hot), self.coefficient(raw))

    def similarities(self, state: Any, query: Views) -> tuple[Tensor, Tensor | None]:
        """s_c and, of the variants that compare maps, s_f or -||f - f_n||² / T_m: (Q, N) each."""
        s_class = SIMILARITIES[self.distance](query.vec, state.proto) / self.temperature
        return s_class, None if query.local is None else self.local_similarity(query.local, state.local)

    def local_similarity(self, query: Tensor, class_map: Tensor) -> Tensor:
        """What ``local`` gave of the queries, against its class means -> (Q, N)."""
        if self.variant.maps:
            return neg_sq_euclidean(query.flatten(1), class_map.flatten(1)) / self.map_temperature
        return pixel_similarity(query, class_map, self.top_k)

    def compare(self, state: Any, query: Views) -> Comparison:
        s_class, s_local = self.similarities(state, query)
        e_class, nearest = energy(s_class), partial(smallest_distance, s_class)
        moved = cache(lambda: movement(self.attend.swapped, state, query.vec, s_class))
        own: dict[str, Callable[[], Tensor]] = {"snatcher": moved, "E_c": lambda: e_class}
        for name, e in self.map_energies(state, e_class, s_local).items():
            with_distance, with_movement = sums_of(name)
            own |= {
                name: partial(add, e),
                with_distance: partial(add, e, nearest),
                with_movement: partial(add, e, moved),
            }
        return Comparison(s_class, own)

    def map_energies(self, state: Any, e_class: Tensor, s_local: Tensor | None) -> dict[str, Tensor]:
        """(Q,) each: E_m, or E_f and E."""
        if s_local is None:
            return {}
        e_local = energy(s_local)
        if self.variant.maps:
            return {"E_m": e_local}
        a, b = state.coefficient
        return {"E_f": e_local, "E": a * e_class + b * e_local}

    def loss(self, episode: Episode) -> dict[str, Tensor]:
        support, query = self.views(episode)
        comparison = self.compare(self.enroll(support, episode.support_one_hot, episode.drawn), query)
        terms = {"closed": known_cross_entropy(comparison.logits, episode.query_label)}
        if self.variant.trained is not None:
            margin = energy_margin(comparison.scores[self.variant.trained], episode.known, *self.margins)
            terms["energy"] = self.energy_weight * margin
        return terms


def sums_of(energy: str) -> tuple[str, str]:
    """Names of its sums with the smallest distance and with SnaTCHer's movement."""
    return "delay" if energy == "E_f" else f"{energy}+distance", f"{energy}+snatcher"


def add(e: Tensor, *others: Callable[[], Tensor]) -> Tensor:
    """An energy and other open scores, (Q,)."""
    return torch.stack([e, *(other() for other in others)]).sum(dim=0)


class Coefficients(nn.Module):
    """a and b of E = a E_c + b E_f, both 1 at the start: prototypes (N, D) -> (2,)."""

    def __init__(self, dim: int, kind: str):
        super().__init__()
        if kind == "task-adaptive":
            self.linear = nn.Linear(dim, 2)
            nn.init.zeros_(self.linear.weight)
            nn.init.ones_(self.linear.bias)
        elif kind == "learnable":
            self.value = nn.Parameter(torch.ones(2))
        self.kind = kind

    def forward(self, proto: Tensor) -> Tensor:
        if self.kind == "task-adaptive":
            pair: Tensor = self.linear(proto.mean(dim=0))
            return pair
        return self.value.clone() if self.kind == "learnable" else proto.new_ones(2)
