"""Every support photo judged by a recognizer that has not seen it; see ``glocal_runtime.left_out``."""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor

from glocal.engine.head import Head
from glocal.methods import Method
from glocal.types import Views
from glocal_runtime import left_out as plain
from glocal_runtime.left_out import PARTS, LeftOut

__all__ = ["PARTS", "LeftOut", "left_out", "left_out_of"]


def left_out(method: Method, views: Views, label: Tensor) -> list[LeftOut]:
    """Of every photo whose class has another one (of a class with very many photos, some)."""
    return plain.left_out(Head(method, label.device), views.numpy(), label.cpu().numpy())


def left_out_of(method: Method, views: Views, label: Tensor, only: Collection[int]) -> list[LeftOut]:
    """Photos of the classes ``only``; the others enter as their mean."""
    return plain.left_out_of(Head(method, label.device), views.numpy(), label.cpu().numpy(), only)
