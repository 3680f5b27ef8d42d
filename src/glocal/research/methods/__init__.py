"""Methods by name.  Adding one is a file here and a line in METHODS; tests, pages and lists follow from that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from glocal.research import plugins
from glocal.research.methods.ascm import ASCM
from glocal.research.methods.att import ATT, ATTG
from glocal.research.methods.base import Method
from glocal.research.methods.blocks import Centred
from glocal.research.methods.dnpg import DNPG
from glocal.research.methods.eol import EOL
from glocal.research.methods.feat import FEAT
from glocal.research.methods.frozen_gel import FrozenGEL
from glocal.research.methods.gel import GEL
from glocal.research.methods.knn import KNN
from glocal.research.methods.mahalanobis import Mahalanobis
from glocal.research.methods.open_prototype import OpenPrototype
from glocal.research.methods.oslo import OSLO
from glocal.research.methods.peeler import Peeler
from glocal.research.methods.protonet import ProtoNet
from glocal.research.methods.rfdnet import RFDNet
from glocal.research.methods.ridge import KernelRidge
from glocal.research.methods.snatcher import SnaTCHerF
from glocal.research.methods.snatcher_norm import SnaTCHerL, SnaTCHerT

METHODS: dict[str, type[Method]] = {
    "protonet": ProtoNet,
    "feat": FEAT,
    "peeler": Peeler,
    "snatcher-f": SnaTCHerF,
    "snatcher-t": SnaTCHerT,
    "snatcher-l": SnaTCHerL,
    "att": ATT,
    "att-g": ATTG,
    "rfdnet": RFDNet,
    "open-prototype": OpenPrototype,
    "gel": GEL,
    "frozen-gel": FrozenGEL,
    "ascm": ASCM,
    "dnpg": DNPG,
    "knn": KNN,
    "mahalanobis": Mahalanobis,
    "ridge": KernelRidge,
    "oslo": OSLO,
    "eol": EOL,
}
"""Every method by its name in recipes; take more with ``METHODS["name"] = Class``."""

SWITCHES = ("centre",)  # settings that are off or on for every method
"""Settings that every method takes beside its own."""


def build_method(name: str, dim: int, settings: Mapping[str, Any] | None = None) -> Method:
    """The method of that name for maps of ``dim`` channels; ``centre = True`` puts feature centring before it."""
    own = dict(settings or {})
    centre = own.pop("centre", False)
    make: Callable[..., Method] = plugins.find(plugins.METHODS, METHODS, name)
    method = make(dim, **own)
    return Centred(method, dim) if centre else method


__all__ = ["METHODS", "SWITCHES", "Method", "build_method"]
