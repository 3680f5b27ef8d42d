"""Every support photo judged by a recognizer that has not seen it: the ground of the threshold and the check-up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from glocal.engine.calibrate import LeaveOneOut, left_out_scores
from glocal.methods import Method
from glocal.types import Output, Views

PARTS = ("E_c", "E_f")  # open scores of a part of the picture: the whole, and its patches


class LeftOut(NamedTuple):
    """A support photo against the classes without it."""

    photo: int  # its row in the support
    label: int
    shots: int  # photos that were left of its class
    score: float  # open score
    nearest: int  # the class it would have been given
    parts: Mapping[str, float]

    @property
    def loo(self) -> LeaveOneOut:
        return LeaveOneOut(self.label, self.shots, self.score)


def left_out(method: Method, views: Views, label: Tensor) -> list[LeftOut]:
    """Of every photo whose class has another one (of a class with very many photos, some)."""
    listener = _Listener(method)
    scores = left_out_scores(cast(Method, listener), views, label)
    taken: set[int] = set()
    found = []
    for one, heard in zip(scores, listener.heard, strict=True):
        same = (label == one.label) & (views.vec == heard.vec).all(dim=1)
        photo = next(row for row in torch.nonzero(same).flatten().tolist() if row not in taken)
        taken.add(photo)
        found.append(LeftOut(photo, one.label, one.shots, one.score, heard.nearest, heard.parts))
    return found


def left_out_of(method: Method, views: Views, label: Tensor, only: Collection[int]) -> list[LeftOut]:
    """Photos of the classes ``only``; the others enter as their mean, which is all that most methods keep of a class.

    Leaving out every photo of 200 classes takes many seconds, and a new class hardly moves the scores of the old ones.
    """
    shots = torch.bincount(label)
    others = torch.tensor([c for c in range(len(shots)) if c not in only], dtype=torch.long, device=label.device)
    whole = ~torch.isin(label, others)

    def condense(x: Tensor) -> Tensor:
        return torch.cat([_means(x, label, shots)[others], x[whole]])

    condensed = Views(condense(views.vec), None if views.local is None else condense(views.local))
    order = torch.cat([others, label[whole]])
    rows = torch.nonzero(whole).flatten()
    found = left_out(method, condensed, order)
    return [each._replace(photo=int(rows[each.photo - len(others)])) for each in found]


class _Heard(NamedTuple):
    vec: Tensor  # (D,)
    nearest: int
    parts: Mapping[str, float]


class _Listener:
    """Stands in for a method while its support is left out, and notes more than the open score."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self.enroll = method.enroll
        self.heard: list[_Heard] = []

    def score(self, state: Any, query: Views) -> Output:
        comparison = self._method.compare(state, query)
        parts = {name: comparison.own[name]() for name in PARTS if name in comparison.own}
        nearest = comparison.logits.argmax(dim=1).tolist()
        for i, vec in enumerate(query.vec):
            self.heard.append(_Heard(vec, nearest[i], {name: float(value[i]) for name, value in parts.items()}))
        return Output(comparison.logits, comparison.open_score(self._method.open_score))


def _means(x: Tensor, label: Tensor, shots: Tensor) -> Tensor:
    """Class means by adding rows up: unlike a product with one-hot labels, its cost does not grow with the classes."""
    total = torch.zeros(len(shots), *x.shape[1:], dtype=x.dtype, device=x.device).index_add_(0, label, x)
    return total / shots.view(-1, *[1] * (x.ndim - 1)).to(x.dtype)
