"""Methods by name.  Adding one: a file here, a line in METHODS, a line in tests/cases.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from glocal import plugins
from glocal.methods.att import ATT, ATTG
from glocal.methods.base import Method
from glocal.methods.centred import Centred
from glocal.methods.eol import EOL
from glocal.methods.feat import FEAT
from glocal.methods.gel import GEL
from glocal.methods.open_prototype import OpenPrototype
from glocal.methods.oslo import OSLO
from glocal.methods.peeler import Peeler
from glocal.methods.protonet import ProtoNet
from glocal.methods.rfdnet import RFDNet
from glocal.methods.snatcher import SnaTCHerF
from glocal.methods.snatcher_norm import SnaTCHerL, SnaTCHerT

METHODS: dict[str, Callable[..., Method]] = {
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
    "oslo": OSLO,
    "eol": EOL,
}

SWITCHES = ("centre",)  # settings that are off or on for every method


def build_method(name: str, dim: int, settings: Mapping[str, Any]) -> Method:
    """The method of that name for maps of ``dim`` channels; ``centre = True`` puts feature centring before it."""
    own = {**settings}
    centre = own.pop("centre", False)
    method = plugins.find(plugins.METHODS, METHODS, name)(dim, **own)
    return Centred(method, dim) if centre else method


__all__ = ["METHODS", "SWITCHES", "Method", "build_method"]
