"""What a recognizer needs of a model: arrays in, arrays out, wherever they are computed.

``OnnxModel`` runs exported graphs, ``glocal.recognizer.torch_model.TorchModel`` the modules of a checkpoint.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from glocal_runtime.errors import RecipeError
from glocal_runtime.images import Pixels, Preprocess
from glocal_runtime.score_model import ScoreModel
from glocal_runtime.views import Array, Labels, Views

DEFAULT = "photos-gel"
PARTS = ("E_c", "E_f")  # open scores of a part of the picture: the whole, and its patches
NEEDS_RIVALS = ("entropy", "doubt", "margin")  # open scores that compare classes with each other
CHECKPOINT, ONNX = "checkpoint", "onnx"  # kinds of models in a file


class Scores(NamedTuple):
    """Queries compared with the classes."""

    logits: Array  # (Q, N)
    open_score: Array  # (Q,) larger = more unknown
    parts: Mapping[str, Array]  # by name of PARTS, (Q,) each


class Head(Protocol):
    """The part of a model that compares views; a method without a backbone is one."""

    min_way: int  # fewest classes it is defined for

    def enroll(self, support: Views, label: Labels) -> Any: ...

    def compare(self, state: Any, query: Views) -> Scores: ...


class Model(Head, Protocol):
    name: str  # as the user named it
    method: str
    open_score: str  # the one it decides by
    score_names: tuple[str, ...]  # those it could decide by
    score_model: ScoreModel | None  # what it knows of its own open score
    preprocess: Preprocess
    sha256: str  # of what is in the file

    def embed(self, images: Pixels) -> Views: ...  # (B, size, size, 3) uint8, as pictures lie in memory

    def record(self) -> dict[str, Any]: ...  # what the manifest of a file says about it

    def files(self) -> dict[str, bytes]: ...  # what goes into the file


def torch_models() -> Any:
    """The module that reads checkpoints; only machines that hold one need it."""
    try:
        return importlib.import_module("glocal.recognizer.torch_model")
    except ModuleNotFoundError as error:
        raise RecipeError(
            f"a checkpoint needs {error.name}, which is not installed; pip install glocal with all it needs, or export "
            "the recognizer where it was made (`glocal export`)",
            code="needs-torch",
        ) from error


def check_way(model: Model, way: int) -> None:
    """Refuse a number of classes that the method, or its open score, is not defined for."""
    if way < model.min_way:
        raise RecipeError(
            f"{model.method} needs at least {model.min_way} classes, got {way}; add one, or use another model such as "
            f"{DEFAULT}",
            code="too-few-classes",
        )
    if way == 1 and model.open_score in NEEDS_RIVALS:
        others = [name for name in model.score_names if name not in NEEDS_RIVALS]
        way_out = f"choose another with --score: {', '.join(others)}" if others else "use another model"
        raise RecipeError(
            f"the open score {model.open_score!r} compares classes with each other and says nothing with a single one; "
            f"add a class or {way_out}",
            code="too-few-classes",
        )
