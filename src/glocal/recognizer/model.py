"""What a recognizer needs of a model: arrays in, arrays out, wherever they are computed.

``glocal.research.torch_model.TorchModel`` runs the modules of a checkpoint, ``OnnxModel`` three ONNX graphs that were
made from these very modules:

    embed.onnx    images (B, size, size, 3) uint8 -> vec (B, D), local (B, D', H, W) for methods that look at patches
    enroll.onnx   vec, local, one-hot label (S, N) of the support -> what the method keeps of it
    score.onnx    that, and vec, local of queries -> logits (Q, N), open_score (Q,), E_c and E_f where there are any

The numbers of pictures, photos and classes are free, so a new class needs no other graph.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from glocal.common.errors import DataError, RecipeError
from glocal.recognizer.features import UNKNOWN, Array, Labels, Views
from glocal.recognizer.photos.images import Pixels, Preprocess

DEFAULT = "photos-fast"
PARTS = ("E_c", "E_f")  # open scores of a part of the picture: the whole, and its patches
NEEDS_RIVALS = ("entropy", "doubt", "margin")  # open scores that compare classes with each other
CHECKPOINT, ONNX = "checkpoint", "onnx"  # kinds of models in a file
EMBED, ENROLL, SCORE = "embed.onnx", "enroll.onnx", "score.onnx"
GRAPHS = (EMBED, ENROLL, SCORE)
STATE = "state_"  # what enroll.onnx gives and score.onnx takes
QUERIES = 64  # that score.onnx sees at once, and ...
PIXEL_PAIRS = 2**23  # ... cosines of patches: 32 MiB


class Scores(NamedTuple):
    """Queries compared with the classes."""

    logits: Array  # (Q, N)
    open_score: Array  # (Q,) larger = more unknown
    parts: Mapping[str, Array]  # by name of PARTS, (Q,) each


Asked = Callable[[Labels], Scores]  # rows of the views that may be asked about
Trial = Callable[[Labels, Labels], Asked]  # rows of a support that are enrolled, and their labels


class Head(Protocol):
    """The part of a model that compares views; a method without a backbone is one."""

    min_way: int  # fewest classes it is defined for
    takes_unknown: bool  # whether known unknowns may be among the support

    def enroll(self, support: Views, label: Labels) -> Any: ...  # a label of UNKNOWN is a photo of no class

    def compare(self, state: Any, query: Views) -> Scores: ...

    def trials(self, support: Views, asked: Views) -> Trial: ...  # to enroll and ask about rows any number of times


class Model(Head, Protocol):
    name: str  # as the user named it
    method: str
    open_score: str  # the one it decides by
    score_names: tuple[str, ...]  # those it could decide by
    preprocess: Preprocess
    sha256: str  # of what is in the file

    def embed(self, images: Pixels) -> Views: ...  # (B, size, size, 3) uint8, as pictures lie in memory

    def record(self) -> dict[str, Any]: ...  # what the manifest of a file says about it

    def files(self) -> dict[str, bytes]: ...  # what goes into the file


def torch_models() -> Any:
    """The module that reads checkpoints; only machines that hold one need it."""
    try:
        return importlib.import_module("glocal.research.torch_model")
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


def trials(head: Head, support: Views, asked: Views) -> Trial:
    """For a head that begins anew each time."""

    def trial(rows: Labels, label: Labels) -> Asked:
        state = head.enroll(support.rows(rows), label)
        return lambda query: head.compare(state, asked.rows(query))

    return trial


class Graph:
    """One ONNX graph on the CPU: arrays by name in and out."""

    def __init__(self, data: bytes, where: str, *, threads: int = 0) -> None:
        try:
            import onnxruntime as ort
        except ModuleNotFoundError as error:
            raise RecipeError(
                "this recognizer holds ONNX graphs and needs onnxruntime: pip install onnxruntime", code="needs-onnx"
            ) from error
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3  # errors: what a graph could do better is nothing its user can mend
        try:
            self._session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has no common error class
            what = str(error).splitlines()[0]
            raise DataError(
                f"{where} cannot be used by onnxruntime {ort.__version__} ({what}); export again"
            ) from error
        self.inputs = [each.name for each in self._session.get_inputs()]
        self.outputs = [each.name for each in self._session.get_outputs()]

    def __call__(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        found = self._session.run(self.outputs, {name: arrays[name] for name in self.inputs})
        return dict(zip(self.outputs, found, strict=True))


@dataclass(eq=False)
class OnnxModel:
    """The graphs by file name, and what is known of the model they come from."""

    name: str
    method: str
    open_score: str
    min_way: int
    preprocess: Preprocess
    graphs: Mapping[str, bytes]
    takes_unknown: bool = False
    precision: str = "float32"
    report: Mapping[str, Any] = field(default_factory=dict)  # what was measured when it was made
    threads: int = 0  # of onnxruntime; 0 is one per core

    def __post_init__(self) -> None:
        self._embed, self._enroll, self._score = (
            Graph(self.graphs[name], name, threads=self.threads) for name in GRAPHS
        )
        self.score_names: tuple[str, ...] = (self.open_score,)
        digests = [hashlib.sha256(self.graphs[name]).digest() for name in GRAPHS]
        self.sha256 = hashlib.sha256(b"".join(digests)).hexdigest()

    @classmethod
    def read(cls, record: Mapping[str, Any], files: Mapping[str, bytes], *, threads: int = 0) -> OnnxModel:
        """From a recognizer's file."""
        fields = {name: value for name, value in record.items() if name != "kind"}
        fields["preprocess"] = Preprocess.from_json(record["preprocess"])
        return cls(**fields, graphs={name: files[name] for name in GRAPHS}, threads=threads)

    def record(self) -> dict[str, Any]:
        return {
            "kind": ONNX,
            "name": self.name,
            "method": self.method,
            "open_score": self.open_score,
            "preprocess": self.preprocess.to_json(),
            "min_way": self.min_way,
            "precision": self.precision,
            "takes_unknown": self.takes_unknown,
            "report": dict(self.report),
        }

    def files(self) -> dict[str, bytes]:
        return dict(self.graphs)

    def embed(self, images: Pixels) -> Views:
        found = self._embed({"images": images})
        return Views(found["vec"], found.get("local"))

    def enroll(self, support: Views, label: Labels) -> dict[str, Array]:
        one_hot = one_hot_rows(label)
        return self._enroll({**_arrays(support), "label": one_hot}) | {"n_way": np.array(one_hot.shape[1])}

    def compare(self, state: Any, query: Views) -> Scores:
        step = QUERIES
        if query.local is not None:
            pixels = int(np.prod(query.local.shape[2:]))
            step = max(1, min(step, PIXEL_PAIRS // (int(state["n_way"]) * pixels * pixels)))
        turns = [
            self._score({**state, **_arrays(query.rows(slice(start, start + step)))})
            for start in range(0, len(query), step)
        ]
        if not turns:  # graphs take one query at least
            nothing = np.empty(0, np.float32)
            parts = {name: nothing for name in PARTS if name in self._score.outputs}
            return Scores(np.empty((0, int(state["n_way"])), np.float32), nothing, parts)
        found = {name: np.concatenate([each[name] for each in turns]) for name in self._score.outputs}
        return Scores(found["logits"], found[self.open_score], {name: found[name] for name in PARTS if name in found})

    def trials(self, support: Views, asked: Views) -> Trial:
        return trials(self, support, asked)


def one_hot_rows(label: Labels) -> Array:
    """(S,) -> (S, N) float32; the row of a photo of no class is 0."""
    rows = np.eye(int(label.max()) + 1, dtype=np.float32)[label]
    rows[label == UNKNOWN] = 0
    return rows


def _arrays(views: Views) -> dict[str, Array]:
    return {"vec": views.vec} if views.local is None else {"vec": views.vec, "local": views.local}
