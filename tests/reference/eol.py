"""Slow twin of EOL: the published form with an explicit outlier logit, row by row, fitted by autograd and torch's Adam.

Everything stays a tensor, so that ``loss`` can be differentiated.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Fitted(NamedTuple):
    proto: Tensor  # (N, D)
    eta: Tensor  # (N,)
    delta: Tensor  # (N,)


def row_logits(now: Fitted, x: Tensor, scale: float) -> Tensor:
    """x (D,) -> (N,)."""
    cos = [(x @ p) / (p @ p).sqrt() for p in now.proto]
    return torch.stack([scale * (now.eta[n].exp() * cos[n] + now.delta[n]) for n in range(len(cos))])


def row_p(logit: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Logits (N,) -> probability of each class (N,), probability of being one of them ()."""
    e = logit.exp()
    outlier = -e.sum().log() + torch.log(torch.tensor(float(len(e)), dtype=e.dtype) / share)
    inside = 1 / (1 + outlier.exp())
    return inside * e / e.sum(), inside


def loss(
    now: Fitted,
    support: Tensor,
    label: Tensor,
    query: Tensor,
    *,
    scale: float,
    share: float,
    balance: str = "shots",
) -> dict[str, Tensor]:
    """Unit vectors support (S, D), query (Q, D) -> the terms, to be added."""
    n_way, q = len(now.proto), len(query)
    k = len(support) / n_way if balance == "shots" else n_way
    of_support = [row_p(row_logits(now, x, scale), share)[0] for x in support]
    of_query = [row_p(row_logits(now, x, scale), share) for x in query]
    terms = {
        "support": -sum(p[int(y)].log() for p, y in zip(of_support, label, strict=True)) / len(support),
        "entropy": -sum((p[n] * p[n].log() for p, _ in of_query for n in range(n_way))) / q / n_way,
        "known": torch.zeros((), dtype=support.dtype),
    }
    for n in range(n_way):
        share_n = k / (1 - share) * sum(p[n] for p, _ in of_query) / q
        terms["known"] = terms["known"] + share_n * share_n.log() / n_way
    outside = 1 / share * sum(1 - inside for _, inside in of_query) / q
    terms["outlier"] = outside * outside.log()
    return terms


def fit(
    support: Tensor,
    label: Tensor,
    query: Tensor,
    *,
    scale: float,
    share: float,
    steps: int,
    rate: float,
    balance: str = "shots",
) -> Fitted:
    n_way = int(label.max()) + 1
    now = Fitted(
        torch.stack([support[label == n].sum(0) / int((label == n).sum()) for n in range(n_way)]).requires_grad_(),
        torch.zeros(n_way, dtype=support.dtype, requires_grad=True),
        torch.zeros(n_way, dtype=support.dtype, requires_grad=True),
    )
    optimizer = torch.optim.Adam(list(now), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        sum(loss(now, support, label, query, scale=scale, share=share, balance=balance).values()).backward()
        optimizer.step()
    return Fitted(*(value.detach() for value in now))


@torch.no_grad()
def scores(now: Fitted, support: Tensor, query: Tensor, *, scale: float, share: float) -> tuple[Tensor, Tensor]:
    """Logits (Q, N) with prototypes estimated once more, 1 - p_in (Q,) with those that were fitted."""
    everything = torch.cat([support, query])
    p = [row_p(row_logits(now, x, scale), share) for x in everything]
    moved = []
    for n in range(len(now.proto)):
        total = sum(row[n] for row, _ in p)
        moved.append(sum(row[n] * x for (row, _), x in zip(p, everything, strict=True)) / total)
    after = now._replace(proto=torch.stack(moved))
    logits = torch.stack([row_logits(after, x, scale) for x in query])
    return logits, torch.stack([1 - inside for _, inside in p[len(support) :]])
