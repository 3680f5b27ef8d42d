r"""GEL for frozen and small backbones: it starts at plain cosine prototypes and may only learn to depart from them.

Similarities, energies, variants and loss are those of ``gel``; every setting below is ours and off unless asked for.

.. math:: s_c = e^w \frac{\cos(e, p^*) - \beta\,(\cos(e, B) + \cos(p^*, B))}{T_c}, \qquad
          s_f = \frac{r}{P} \sum_u \mathrm{top}_k \cos(f^*_u, f^*_{n,v}) + o

``learn_temperature`` learns w (0 at the start).  ``background`` is :math:`\beta`, the share of the cosines with the
base classes B that is taken away.  ``local_scale="mean"`` divides by the number P of query pixels, so that E_f starts
near the margins on any map size; "learned" also learns r (1 / ``local_temperature`` at the start) and o (0).
``gentle_attention`` begins as the identity and ``gentle_local`` with the cosines of the maps as they are; ``adapter``
lets the embedding turn, x + W x with W = 0 at the start; ``channel_gains`` brings the channels of a wide backbone to
one size first, by the base pictures; ``attention_width`` and ``local_width`` keep the head of a wide backbone small.

Differs from the paper: in all of that.  With every setting off it is ``gel``, but for the numbers that the calibration
starts with.

>>> import torch
>>> from glocal.research.types import Episode
>>> _ = torch.manual_seed(0)
>>> method = FrozenGEL(8, distance="cosine", gentle_attention=True, local_scale="learned").eval()
>>> task = Episode(torch.randn(2, 8, 3, 3), torch.tensor([0, 1]), torch.randn(4, 8, 3, 3), torch.tensor([0, 1, 1, -1]))
>>> torch.equal(method.enroll(method.embed(task.support), task.support_one_hot).proto, task.support.mean(dim=(2, 3)))
True
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glocal.common.errors import RecipeError
from glocal.research.methods.base import MethodCard, check_choice, check_positive, check_weight
from glocal.research.methods.blocks import Halving, ResidualLinear, ScaleCalibration, SetAttention
from glocal.research.methods.gel import GEL, Coefficients
from glocal.research.ops.similarity import SIMILARITIES, pool
from glocal.research.types import BaseClasses, Views

LOCAL_SCALES = ("sum", "mean", "learned")


class FrozenGEL(GEL):
    card = MethodCard(
        "Frozen GEL", learns="GEL's attention and calibration; on request scales, gains and a turn of the embedding"
    )

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
        learn_temperature: bool = False,
        local_scale: str = "sum",
        local_temperature: float = 0.1,
        local_width: int | None = None,
        gentle_local: bool = False,
        gentle_attention: bool = False,
        attention_width: int | None = None,
        dropout: float = 0.5,
        attention_dropout: float = 0.1,
        adapter: bool = False,
        channel_gains: bool = False,
        background: float = 0.0,
        open_score: str | None = None,
    ):
        with torch.random.fork_rng(devices=[]):  # GEL's own layers are replaced below and draw no numbers
            super().__init__(
                dim,
                variant=variant,
                top_k=top_k,
                coefficients=coefficients,
                energy_weight=energy_weight,
                m_known=m_known,
                m_unknown=m_unknown,
                distance=distance,
                temperature=temperature,
                map_temperature=map_temperature,
                reduce=reduce,
                open_score=open_score,
            )
        for name, width in (("local_width", local_width), ("attention_width", attention_width)):
            if width is not None and width < 1:
                raise RecipeError(f"{name} must be at least 1 channel, got {width}")
        if background and distance != "cosine":
            raise RecipeError(f"background is a share of cosines; it needs distance 'cosine', got {distance!r}")
        self.sharpness = nn.Parameter(torch.zeros(())) if learn_temperature else None  # w, log of a factor on s_c
        self.local_scale = check_choice("local_scale", local_scale, LOCAL_SCALES)
        self.attend = SetAttention(
            dim,
            width=attention_width,
            dropout=dropout,
            attention_dropout=attention_dropout,
            gentle=gentle_attention,
        )
        self.adapter = ResidualLinear(dim) if adapter else nn.Identity()
        self.gains = ChannelGains(dim) if channel_gains else None
        self.background = Background(dim, background) if check_weight("background", background) else None
        self.needs_base = channel_gains or self.background is not None
        self.calibrate = ScaleCalibration(dim, local_width, gentle=gentle_local) if self.variant.pixel else None
        factor = 1 / check_positive("local_temperature", local_temperature)
        self.local_affine = LearnedScale(factor) if self.variant.pixel and local_scale == "learned" else None
        self.coefficient = Coefficients(dim, coefficients)
        self.reduce = Halving(dim) if reduce else None

    def set_base(self, base: BaseClasses) -> None:
        if self.gains is not None:
            self.gains.fill(base.mean)
        if self.background is not None:
            with torch.no_grad():  # vectors alone: batch norm of the local branch has nothing to learn from class means
                self.background.fill(self._vectors(self._gained(base.centre[:, :, None, None])))

    def _gained(self, maps: Tensor) -> Tensor:
        return maps if self.gains is None else self.gains(maps)

    def _vectors(self, maps: Tensor) -> Tensor:
        vec: Tensor = self.adapter(pool(maps))
        return vec

    def embed(self, maps: Tensor) -> Views:
        maps = self._gained(maps)
        return Views(self._vectors(maps), self.local(maps))

    def similarities(self, state: Any, query: Views) -> tuple[Tensor, Tensor | None]:
        s_class = SIMILARITIES[self.distance](query.vec, state.proto)
        if self.background is not None:
            s_class = s_class - self.background(query.vec, state.proto)
        s_class = s_class / self.temperature
        if self.sharpness is not None:
            s_class = s_class * self.sharpness.exp()
        return s_class, None if query.local is None else self.local_similarity(query.local, state.local)

    def local_similarity(self, query: Tensor, class_map: Tensor) -> Tensor:
        similarity = super().local_similarity(query, class_map)
        if self.variant.pixel and self.local_scale != "sum":
            similarity = similarity / math.prod(query.shape[2:])
        return similarity if self.local_affine is None else self.local_affine(similarity)


class ChannelGains(nn.Module):
    """A learned positive factor per channel: maps (B, C, H, W) -> the same shape.  1 each until ``fill``.

    ``fill`` sets 1 / sqrt(m_c² + mean(m²)), with m_c the channel's usual size over the base pictures.  Otherwise few
    channels that are large on every picture outvote the many that tell classes apart.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.log_gain = nn.Parameter(torch.zeros(dim))

    def fill(self, mean: Tensor) -> None:
        size = mean.square()
        log_gain = -0.5 * (size + size.mean() + 1e-12).log()
        with torch.no_grad():
            self.log_gain.copy_(log_gain - log_gain.mean())

    def forward(self, maps: Tensor) -> Tensor:
        return maps * self.log_gain.exp()[:, None, None]


class LearnedScale(nn.Module):
    """factor * x + offset; begins with the factor 10 that cosine classifiers start from, unless told otherwise."""

    def __init__(self, factor: float = 10.0) -> None:
        super().__init__()
        self.factor, self.offset = nn.Parameter(torch.tensor(float(factor))), nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x + self.offset


class Background(nn.Module):
    """What a cosine owes to what all pictures share: share * (cos(q, B) + cos(p, B)), the mean over base classes B.

    query (Q, D), proto (N, D) -> (Q, N), to be subtracted from cos(q, p).  A picture that is like everything is then
    not like this class.  0 until ``fill``.  Not learned: a margin loss would use it to move all energies at once.
    """

    mean: Tensor

    def __init__(self, dim: int, share: float):
        super().__init__()
        self.share = share
        self.register_buffer("mean", torch.zeros(dim))

    def fill(self, rows: Tensor) -> None:
        """rows (B, D): one embedding per base class."""
        with torch.no_grad():
            self.mean.copy_(F.normalize(rows, dim=-1).mean(dim=0))

    def forward(self, query: Tensor, proto: Tensor) -> Tensor:
        of_query, of_proto = (F.normalize(x, dim=-1) @ self.mean for x in (query, proto))
        return self.share * (of_query[:, None] + of_proto)
