"""Means over pixels and classes, similarities of vectors and of maps pixel by pixel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from glocal.common.errors import DataError, RecipeError

PIXEL_PAIRS = 2**23  # cosines held at once by pixel_similarity: 32 MiB in float32, a 5-way task of 150 needs 2


def pool(maps: Tensor) -> Tensor:
    """Global average: (B, C, H, W) -> (B, C)."""
    return maps.mean(dim=(-2, -1))


def cells(maps: Tensor, side: int) -> Tensor:
    """(B, C, H, W) -> (B, C, side, side); H and W are at least ``side``.  A pixel is the mean of what it covers.

    The sums of ``adaptive_avg_pool2d`` as matrix products: a graph lacks that layer where a grid does not divide a map.

    >>> cells(torch.arange(9.0).view(1, 1, 3, 3), 2)
    tensor([[[[2., 3.],
              [5., 6.]]]])
    """
    rows, columns = (cell_shares(n, side).to(maps) for n in maps.shape[-2:])
    return rows @ maps @ columns.mT


@cache
def cell_shares(n: int, side: int) -> Tensor:
    """(side, n): what each of ``n`` pixels in a row contributes to each cell."""
    with torch.inference_mode(False):  # kept, so it must serve training too
        table = torch.zeros(side, n)
        for i in range(side):
            first, end = i * n // side, -(-(i + 1) * n // side)
            table[i, first:end] = 1 / (end - first)
    return table


def in_turns(work: Callable[..., Tensor], *rows: Tensor, step: Callable[[], int], dim: int = 0) -> Tensor:
    """``work(*rows)`` on at most ``step()`` rows at a time, joined along ``dim``.

    A traced graph works on all rows at once.

    >>> in_turns(lambda x: x - x.mean(), torch.arange(4.0), step=lambda: 2)
    tensor([-0.5000,  0.5000, -0.5000,  0.5000])
    """
    if torch.compiler.is_exporting():  # a graph has one shape of work; its caller takes rows in turns
        return work(*rows)
    parts = (torch.split(each, max(1, step())) for each in rows)
    return torch.cat([work(*part) for part in zip(*parts, strict=True)], dim=dim)


def class_mean(x: Tensor, one_hot: Tensor) -> Tensor:
    """Mean of each class: x (S, *F), one-hot labels (S, N) -> (N, *F).  GEL eqs. 1 and 7."""
    one_hot = one_hot.to(x.dtype)
    return torch.einsum("sn,s...->n...", one_hot / one_hot.sum(dim=0), x)


def neg_sq_euclidean(query: Tensor, proto: Tensor) -> Tensor:
    """-||q - p||²: query (..., Q, D), proto (..., N, D) -> (..., Q, N).

    One matrix product, by ||q||² - 2 q·p + ||p||².  Both sides are first moved by the mean prototype, because that
    expansion loses digits when vectors are far from the origin and close to each other.
    """
    centre = proto.mean(dim=-2, keepdim=True)
    q, p = query - centre, proto - centre
    squared = q.square().sum(-1, keepdim=True) + p.square().sum(-1).unsqueeze(-2) - 2 * q @ p.mT
    return -squared.clamp_min(0)


def neg_euclidean(query: Tensor, proto: Tensor) -> Tensor:
    """-||q - p||: query (Q, D), proto (N, D) -> (Q, N).  Its gradient at distance 0 is 0."""
    squared = -neg_sq_euclidean(query, proto)
    return -torch.where(squared > 0, squared, 1).sqrt() * (squared > 0)


def cosine(query: Tensor, proto: Tensor) -> Tensor:
    """Cosine similarity: query (Q, D), proto (N, D) -> (Q, N) in [-1, 1]."""
    return F.normalize(query, dim=-1) @ F.normalize(proto, dim=-1).mT


def pixel_similarity(query: Tensor, class_map: Tensor, top_k: int) -> Tensor:
    r"""Sum over query pixels u of the mean of the k class pixels v most like it (GEL eq. 9 with T = k).

    .. math:: s_f(i, n) = \frac1k \sum_u \sum_{v \in topk} \cos(f_{i,u}, f_{n,v})

    query (Q, C, H, W), class_map (N, C, H', W') -> (Q, N).  Pixels are normalised once, then one matrix product gives
    every cosine.  The paper's Algorithm 1 broadcasts both maps to (Q, N, P, C, P') instead and is kept as a test.
    At most ``PIXEL_PAIRS`` cosines exist at a time; more queries or classes are taken in turns.  That works in training
    too, because the backward pass keeps the winners' positions and not the cosines.
    """
    n_class, channels, height, width = class_map.shape
    if query.shape[1] != channels:
        raise DataError(f"query maps have {query.shape[1]} channels but class maps {channels}; embed both alike")
    n_pixel = height * width
    if not 1 <= top_k <= n_pixel:
        raise RecipeError(
            f"top_k must be in 1..{n_pixel} (pixels of one class map), got {top_k}; "
            f"these maps are {height}x{width} (32-pixel images give 2x2 maps, 84-pixel images 5x5)"
        )
    q = F.normalize(query.flatten(2).mT, dim=-1)  # (Q, P, C)
    c = F.normalize(class_map.flatten(2).mT, dim=-1)  # (N, P', C)
    pairs = max(1, q.shape[1] * n_pixel)  # cosines of one query with one class

    def class_step() -> int:
        return max(1, min(n_class, PIXEL_PAIRS // pairs))

    def best(some_q: Tensor) -> Tensor:
        return in_turns(lambda some_c: _best_pixels(some_q, some_c, top_k), c, step=class_step, dim=1)

    return in_turns(best, q, step=lambda: PIXEL_PAIRS // (pairs * class_step()))


def _best_pixels(q: Tensor, c: Tensor, top_k: int) -> Tensor:
    """Unit pixels (Q, P, C) and (N, P', C) -> (Q, N)."""
    cos = (q.flatten(0, 1) @ c.flatten(0, 1).mT).view(*q.shape[:2], *c.shape[:2])  # (Q, P, N, P')
    if top_k == 1:  # one pass instead of a partial sort
        return cos.max(dim=-1).values.sum(dim=1)
    return cos.topk(top_k, dim=-1, sorted=False).values.sum(dim=(1, 3)) / top_k


SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sq-euclidean": neg_sq_euclidean,
    "euclidean": neg_euclidean,
    "cosine": cosine,
}
