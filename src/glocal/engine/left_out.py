"""What the support says about itself, by a method; see ``glocal_runtime.left_out``."""

from __future__ import annotations

from torch import Tensor

from glocal.engine.head import Head
from glocal.methods import Method
from glocal.types import Views
from glocal_runtime import left_out as plain
from glocal_runtime.threshold import LeaveOneOut


def left_out_scores(method: Method, views: Views, label: Tensor) -> list[LeaveOneOut]:
    """The score of every support photo whose class has others: views of S photos, label (S,) in 0..N-1."""
    found = plain.left_out(Head(method, label.device), views.numpy(), label.cpu().numpy())
    return [each.loo for each in found]


def strange_scores(method: Method, views: Views, label: Tensor) -> list[float]:
    """What unknown photos would score, from the support alone: a class as a stranger to all others, one mean each."""
    return plain.strange_scores(Head(method, label.device), views.numpy(), label.cpu().numpy())
