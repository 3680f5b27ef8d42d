"""The methods of the comparison as overrides of a recipe: on frozen maps, and fine-tuned."""

from __future__ import annotations

from typing import NamedTuple

# How the methods of the comparison are set and taught: as published, scaled to the width of the backbone.  Rates are
# those of their papers (ATT and RFDNet) or of FEAT's attention, on which the others stand.
SLOW = "optimizer.lr=0.01"
UNKNOWN = "train.unknown_way=5"  # FEAT's recipe has no unknown queries; these learn from them


class Peer(NamedTuple):
    settings: tuple[str, ...]  # of [method]; {t} is the temperature that fits the width
    frozen: tuple[str, ...]  # overrides on frozen maps
    tuned: tuple[str, ...] = ()  # overrides of FEAT's recipe, which fine-tunes the backbone
    only_frozen: tuple[str, ...] = ()  # more settings on frozen maps


PEERS = {
    "protonet": Peer(("temperature = {t}",), ()),
    # Without an adapter it has nothing to learn on frozen maps.
    "peeler": Peer(("temperature = {t}", "auxiliary_temperature = {t}"), (SLOW,), (UNKNOWN,), ("adapter = true",)),
    "snatcher-t": Peer(("temperature = {t}",), (SLOW,)),
    "snatcher-l": Peer(("temperature = {t}",), (SLOW,)),
    "att": Peer((), ("optimizer.lr=0.03",), ("optimizer.lr=0.03", UNKNOWN)),
    # The rows of a classifier teach a frozen ATT-G almost nothing; see its docstring.
    "att-g": Peer((), ("optimizer.lr=0.03",), ("optimizer.lr=0.03", UNKNOWN), ('rows = "means"',)),
    "rfdnet": Peer((), ("optimizer.lr=0.1", "optimizer.weight_decay=1e-4"), (UNKNOWN,)),
}


def head_of(method: str, *, temperature: float) -> tuple[str, ...]:
    """Overrides that put a method on frozen maps."""
    peer = PEERS[method]
    return (_method(method, (*peer.settings, *peer.only_frozen), temperature), *peer.frozen)


def fine_tuned(method: str) -> tuple[str, ...]:
    """Overrides of FEAT's recipe at full width."""
    return (_method(method, PEERS[method].settings, 64.0), *PEERS[method].tuned)


def learns_frozen(method: str) -> bool:
    """ProtoNet has nothing to learn on frozen maps."""
    return method != "protonet"


def _method(method: str, settings: tuple[str, ...], temperature: float) -> str:
    named = ", ".join((f'name = "{method}"', *settings)).format(t=temperature)
    return f"method={{{named}}}"
