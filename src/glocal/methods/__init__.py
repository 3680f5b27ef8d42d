"""Methods by name.  Adding one: a file here, a line in METHODS, a line in tests/cases.py."""

from __future__ import annotations

from collections.abc import Callable

from glocal.methods.base import Method
from glocal.methods.feat import FEAT
from glocal.methods.gel import GEL
from glocal.methods.protonet import ProtoNet
from glocal.methods.snatcher import SnaTCHerF

METHODS: dict[str, Callable[..., Method]] = {
    "protonet": ProtoNet,
    "feat": FEAT,
    "snatcher-f": SnaTCHerF,
    "gel": GEL,
}

__all__ = ["METHODS", "Method"]
