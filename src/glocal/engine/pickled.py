"""The weights in somebody else's ``.pth`` file, read without executing anything that is in it."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glocal_runtime.errors import WeightsError

CONTAINERS = ("params", "cls_params", "state_dict")  # where the programs put the weights; or at the top
# Harmless objects that programs saved beside the weights: scores and the command line.
BYSTANDERS = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "numpy.dtype", "argparse.Namespace")


class PickledWeights(NamedTuple):
    state: dict[str, Tensor]  # names without ``module.``
    container: str  # the entry that held the weights
    beside: list[str]  # the other entries
    sha256: str  # of the file


def read_pickled_weights(path: Path) -> PickledWeights:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror}") from error
    state, container, beside = _weights_of(_load(content, path), path)
    return PickledWeights(state, container, beside, hashlib.sha256(content).hexdigest())


class _Bystander:
    """Stands in for the objects of BYSTANDERS; takes anything and keeps nothing."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, _: Any) -> None: ...


def _load(content: bytes, path: Path) -> Any:
    """Only tensors and plain values are rebuilt; a file that asks for anything else is refused."""
    inert: list[Any] = [(_Bystander, name) for name in BYSTANDERS]
    try:
        with torch.serialization.safe_globals(inert), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they say is in the sentences below
            return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can make the unpickler fail in any way
        found = re.search(r"GLOBAL (\S+)", str(error))
        if found:
            raise WeightsError(
                f"{path} was refused and nothing in it was run: it asks for {found[1]}, which is no tensor and could "
                "execute code; ask its author for a file with the state dict alone"
            ) from error
        raise WeightsError(f"{path} is damaged, cut short, or not a file that torch.save wrote") from error


def _weights_of(tree: Any, path: Path) -> tuple[dict[str, Tensor], str, list[str]]:
    """The weights, the entry that holds them, and the other entries."""
    if not isinstance(tree, Mapping):
        raise WeightsError(f"{path} holds a {type(tree).__name__}, not a dictionary of weights")
    held = [name for name in CONTAINERS if isinstance(tree.get(name), Mapping)]
    if len(held) > 1:
        raise WeightsError(f"{path} holds weights in {' and '.join(held)}; save a file with one of them")
    weights = tree[held[0]] if held else tree
    state: dict[str, Tensor] = {}
    for key, value in weights.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise WeightsError(f"{path}: entry {key!r} is a {type(value).__name__}, and weights must be tensors")
        # DataParallel around the whole model, or around its backbone alone.
        name = re.sub(r"^(encoder|feature)\.module\.", r"\1.", key.removeprefix("module."))
        if name in state:
            raise WeightsError(f"{path} has {name} twice, with and without module.; keep one of them")
        state[name] = value
    if not state:
        raise WeightsError(f"{path} holds no weights")
    if not held:
        return state, "the top", []
    return state, held[0], [str(name) for name in tree if name != held[0]]
