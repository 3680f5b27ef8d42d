r"""The recognizer's head: cosine prototypes and a ridge regression that sees whole pictures and their patches.

A picture is a vector e of length 1, half of it the pooled features and half their square roots, whitened by how photos
of one class differ (``fit``); and cells :math:`c_u` of a coarse grid over earlier stages of the encoder, or over the
last one where the encoder hands out no other.  Pictures are
compared by both,

.. math:: k(i, j) = \langle e_i, e_j \rangle, \quad
   l(i, j) = \tfrac12 \operatorname{mean}_u \max_v \langle c_{i,u}, c_{j,v} \rangle + \tfrac12 (i \leftrightarrow j)

and a class n is its prototype :math:`p_n` and the weights of a kernel ridge regression on the one-hot labels Y, in
which every class counts alike, however many photos it has (K_i of the class of photo i, their mean over classes K),

.. math:: \alpha = (k + l + r \operatorname{diag}(K_i / K))^{-1} Y, \quad
   s_c(q, n) = \langle e_q, p_n \rangle + w \sum_i k(q, i) \alpha_{i,n}, \quad s_f(q, n) = w \sum_i l(q, i) \alpha_{i,n}

A mean of many photos is nearer to any photo than a single one is: with cosines rho between photos of a class,
prototypes of length 1 would score :math:`\rho / g(K_n)` on a new photo, :math:`g(K) = \sqrt{(1 + (K - 1) \rho) / K}`.
So they get the length :math:`g(K_n) / g(K)`, rho from the support: a class with one photo among classes with eight is
then named right more than half of the time, else less than a third.  Equal numbers of photos leave it at 1.

Logits: :math:`(s_c + s_f) / T`.  With n the best class, :math:`E_c = -s_c`, :math:`E_f = -s_f` and the open score
:math:`E = E_c + E_f`: GEL's sum of a global and a local energy, at the temperature 0 of its log-sum-exp.  How much each
of the two says in a task follows from the regression: its weights are whatever tells this support apart.

Known unknowns, photos of other things, are support photos without a class: their rows of Y are 0, so the regression
learns to be low around them, and one more column, 1 for them alone, gives a response t that is added to the energies.

Differs from the paper: in how both similarities come about, in that nothing is trained (``fit`` takes a covariance of
labelled vectors), and in that classes are named by both, not by the whole picture alone.  The regression needs the
kernel of all pairs, so beyond ``MOST`` support photos it is left out and prototypes decide alone.

>>> import torch
>>> from glocal.research.types import Views
>>> method = KernelRidge(3, patch_channels=[1])
>>> views = method.embed(torch.tensor([[1.0, 0.0, 1.0], [0.0, 2.0, 1.0]])[:, :, None, None])
>>> state = method.enroll(views, torch.eye(2))
>>> method.compare(state, views).logits.argmax(dim=1)
tensor([0, 1])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glocal.common.errors import RecipeError
from glocal.research.methods.base import Asked, Comparison, Method, MethodCard, Trial, check_positive, check_weight
from glocal.research.ops.cells import cells
from glocal.research.ops.similarity import class_mean, pool
from glocal.research.ops.solve import solve
from glocal.research.types import Views

MOST = 600  # support photos whose kernel is taken
USUAL, ALIKE = 0.5, (0.05, 1.0)  # cosine of two photos of a class when no class has two, and where it may lie
TINY = 1e-12  # a square root has no slope at 0
PAIRS = 2**23  # cosines of cells held at once: 32 MiB
LATER = 0.5  # weight of the cells of a stage that is not the earliest


class KernelRidge(Method):
    card = MethodCard("Ridge")
    own_scores = ("E", "E_c", "E_f")
    takes_unknown = True
    most_exported = MOST  # a graph has one way of deciding, the regression

    class State(NamedTuple):
        proto: Tensor  # (N, D) class means of comparable lengths
        vec: Tensor  # (S, D) of every support photo; beyond ``MOST`` of none, here and below
        local: Tensor  # (S, C, side, side) unit cells
        alpha: Tensor  # (S, N + 1) weights of the regression, last those of the known unknowns

    directions: Tensor
    gains: Tensor

    def __init__(
        self,
        dim: int,
        *,
        patch_channels: Sequence[int] = (),
        side: int = 4,
        rank: int = 256,
        ridge: float = 0.1,
        weight: float = 0.5,
        temperature: float = 0.05,
        open_score: str = "E",
    ):
        super().__init__()
        self.patch_channels = tuple(patch_channels)
        self.width = dim - sum(self.patch_channels)
        if self.width < 1 or min(self.patch_channels, default=1) < 1:
            raise RecipeError(
                f"patch_channels must be those of earlier stages, behind the others of the {dim} of a map, got "
                f"{list(patch_channels)}; a backbone with early = true has them in its patch_channels"
            )
        self.side, self.ridge = side, check_positive("ridge", ridge)
        self.weight, self.temperature = check_weight("weight", weight), check_positive("temperature", temperature)
        self.register_buffer("directions", torch.zeros(self.width, min(rank, self.width)))
        self.register_buffer("gains", torch.zeros(min(rank, self.width)))
        self.choose_score(open_score)

    def fit(self, covariance: Tensor, *, shrink: float = 0.5) -> None:
        """Whiten by the covariance (D, D) of square-root vectors within classes, drawn ``shrink`` of the way to its
        mean variance; in the ``rank`` directions of most variance, the others alike."""
        variance, vectors = torch.linalg.eigh(covariance.double())
        drawn = (1 - shrink) * variance / variance.mean() + shrink
        rank = len(self.gains)
        rest = drawn[:-rank].mean() if rank < len(drawn) else drawn.min()
        self.directions.copy_(vectors[:, -rank:])
        self.gains.copy_(1 - (drawn[-rank:] / rest).rsqrt())

    def roots(self, pooled: Tensor) -> Tensor:
        """Square roots of pooled features (B, D), of length 1: what ``fit`` wants the covariance of."""
        return F.normalize(pooled.clamp_min(TINY).sqrt(), dim=-1)

    def embed(self, maps: Tensor) -> Views:
        head, *early = torch.split(maps, [self.width, *self.patch_channels], dim=1)
        return Views(self.vectors(pool(head)), self.patches(early or [head]))

    def vectors(self, pooled: Tensor) -> Tensor:
        """Pooled features (B, D) -> (B, 2 D) of length 1."""
        roots = self.roots(pooled)
        white = roots - (roots @ self.directions * self.gains) @ self.directions.mT
        return torch.cat([F.normalize(pooled, dim=-1), F.normalize(white, dim=-1)], dim=-1) * math.sqrt(0.5)

    def patches(self, early: Sequence[Tensor]) -> Tensor:
        """Maps of stages, the earliest last, each (B, C, H, W) -> cells (B, all C, side, side)."""
        *later, earliest = (F.normalize(cells(each, min(self.side, *each.shape[-2:])), dim=1) for each in early)
        return torch.cat([*(each * math.sqrt(LATER) for each in later), earliest], dim=1)

    def match(self, some: Tensor, others: Tensor) -> Tensor:
        return cell_match(some, others)

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        assert support.local is not None
        if not torch.compiler.is_exporting() and len(support) > MOST:
            return self._prototypes_alone(support.vec, support.local, one_hot)
        kernel = support.vec @ support.vec.mT + self.match(support.local, support.local)
        return self._regression(support.vec, support.local, kernel, one_hot)

    def _regression(self, vec: Tensor, local: Tensor, kernel: Tensor, one_hot: Tensor) -> Any:
        one_hot = one_hot.to(vec)
        shots, unknown = one_hot.sum(dim=0), 1 - one_hot.sum(dim=1, keepdim=True)
        proto, target = prototypes(class_mean(vec, one_hot), shots), torch.cat([one_hot, unknown], dim=1)
        weight = one_hot @ (shots / shots.mean()) + unknown[:, 0]
        alpha = solve(kernel, target, self.ridge * weight).contiguous()  # as a file keeps it, so products add up alike
        return self.State(proto, vec, local, alpha)

    def _prototypes_alone(self, vec: Tensor, local: Tensor, one_hot: Tensor) -> Any:
        """A state without photos: nothing in it is as large as photos times classes."""
        one_hot = one_hot.to(vec)
        proto = prototypes(class_mean(vec, one_hot), one_hot.sum(dim=0))
        return self.State(proto, vec[:0], local[:0], proto.new_zeros(0, len(proto) + 1))

    def compare(self, state: Any, query: Views) -> Comparison:
        assert query.local is not None
        return self._compared(state, query.vec, query.vec @ state.vec.mT, self.match(query.local, state.local))

    def _compared(self, state: Any, vec: Tensor, photo: Tensor, patch: Tensor) -> Comparison:
        """Vectors of queries (Q, D), their k and l to the support (Q, S)."""
        by_photo, by_patch = self.weight * photo @ state.alpha, self.weight * patch @ state.alpha
        whole, patches = vec @ state.proto.mT + by_photo[:, :-1], by_patch[:, :-1]
        both = whole + patches
        best = both.argmax(dim=1, keepdim=True)
        e_class = by_photo[:, -1] - whole.gather(1, best)[:, 0]
        e_pixel = by_patch[:, -1] - patches.gather(1, best)[:, 0]
        own = {"E": lambda: e_class + e_pixel, "E_c": lambda: e_class, "E_f": lambda: e_pixel}
        return Comparison(both / self.temperature, own)

    def trials(self, support: Views, asked: Views) -> Trial:
        """k and l of all photos are taken once and every trial solves on its rows of them: matching patches takes a
        hundred times as long as solving.  Whether there is a regression at all goes by the whole support."""
        assert support.local is not None
        assert asked.local is not None
        vec, local, query_vec = support.vec, support.local, asked.vec
        if len(support) > MOST:

            def alone(rows: Tensor, one_hot: Tensor) -> Asked:
                state = self._prototypes_alone(vec[rows], local, one_hot)
                return lambda query: self._compared(state, query_vec[query], *[vec.new_zeros(len(query), 0)] * 2)

            return alone
        k, l = vec @ vec.mT, self.match(local, local)
        both = k + l
        of_k, of_l = (k, l) if asked is support else (query_vec @ vec.mT, self.match(asked.local, local))

        def trial(rows: Tensor, one_hot: Tensor) -> Asked:
            state = self._regression(vec[rows], local[:0], both[rows][:, rows], one_hot)
            return lambda query: self._compared(state, query_vec[query], of_k[query][:, rows], of_l[query][:, rows])

        return trial


def prototypes(mean: Tensor, shots: Tensor) -> Tensor:
    """Means (N, D) of unit vectors, ``shots`` (N,) of each -> of the length that makes their products comparable."""
    pairs = shots * (shots - 1)
    alike = (shots**2 * mean.square().sum(dim=1) - shots).sum() / pairs.sum().clamp_min(1)  # rho: (K mean)² holds pairs
    alike = torch.where(pairs.sum() > 0, alike, USUAL).clamp(*ALIKE)
    length, usual = (((1 + (k - 1) * alike) / k).sqrt() for k in (shots, shots.mean()))
    return F.normalize(mean, dim=1) * (length / usual)[:, None]


def cell_match(some: Tensor, others: Tensor) -> Tensor:
    """Cells (A, C, h, w) and (B, C, h, w) -> (A, B): how well each finds its best partner, the mean of both ways."""
    a, b = (x.flatten(2).mT for x in (some, others))  # (A, P, C), (B, P, C)
    if torch.compiler.is_exporting():  # an exported graph has one shape of work; who runs it takes turns
        return _match(a, b)
    pairs = a.shape[1] * b.shape[1]
    columns = max(1, min(len(b), PAIRS // pairs))
    rows = max(1, PAIRS // (pairs * columns))
    return torch.cat([torch.cat([_match(x, y) for y in torch.split(b, columns)], dim=1) for x in torch.split(a, rows)])


def _match(a: Tensor, b: Tensor) -> Tensor:
    cosine = (a.flatten(0, 1) @ b.flatten(0, 1).mT).view(*a.shape[:2], *b.shape[:2])  # (A, P, B, P')
    return (cosine.amax(dim=3).mean(dim=1) + cosine.amax(dim=1).mean(dim=2)) / 2
