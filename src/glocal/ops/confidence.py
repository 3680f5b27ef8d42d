"""Open scores that can be read off any method's logits, after the fact.  (Q, N) -> (Q,), larger = more unknown."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from glocal.ops.energy import energy


def entropy(logits: Tensor) -> Tensor:
    """-Σ_n p_n log p_n of the softmax.  0 for one class: a single class is never in doubt by this score."""
    log_p = logits.log_softmax(dim=-1)
    return -(log_p.exp() * log_p).sum(dim=-1)


def doubt(logits: Tensor) -> Tensor:
    """1 - max_n p_n of the softmax."""
    return 1 - logits.softmax(dim=-1).amax(dim=-1)


def distance(logits: Tensor) -> Tensor:
    """-max_n logit_n: the smallest distance to a class, when logits are negative distances."""
    return -logits.amax(dim=-1)


def margin(logits: Tensor) -> Tensor:
    """-(best - second best): small when one class stands out.  0 for one class, which has no rival."""
    if logits.shape[-1] < 2:
        return logits.new_zeros(logits.shape[:-1])
    best = logits.topk(2, dim=-1).values
    return best[..., 1] - best[..., 0]


OPEN_SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "entropy": entropy,
    "doubt": doubt,
    "distance": distance,
    "energy": energy,
    "margin": margin,
}
