"""The model of an export: three ONNX graphs, made from the very modules that glocal runs.

    embed.onnx    images (B, size, size, 3) uint8 -> vec (B, D), local (B, D', H, W) for methods that look at patches
    enroll.onnx   vec, local, one-hot label (S, N) of the support -> what the method keeps of it
    score.onnx    that, and vec, local of queries -> logits (Q, N), open_score (Q,), E_c and E_f where there are any

The numbers of pictures, photos and classes are free, so a new class needs no other graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort

from glocal_runtime.errors import DataError
from glocal_runtime.eye import AnyEye
from glocal_runtime.images import Pixels
from glocal_runtime.left_out import PARTS, Compared, Labels
from glocal_runtime.preprocess import Preprocess
from glocal_runtime.views import Array, Views

EMBED, ENROLL, SCORE = "embed.onnx", "enroll.onnx", "score.onnx"
GRAPHS = (EMBED, ENROLL, SCORE)
STATE = "state_"  # what enroll.onnx gives and score.onnx takes
QUERIES = 64  # that score.onnx sees at once, and ...
PIXEL_PAIRS = 2**23  # ... cosines of patches: 32 MiB


class Graph:
    """One ONNX graph on the CPU: arrays by name in and out."""

    def __init__(self, data: bytes, where: str, *, threads: int = 0) -> None:
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


class GraphEye(AnyEye[Views]):
    """embed.onnx."""

    def __init__(self, embed: Graph, preprocess: Preprocess, *, workers: int = 2) -> None:
        self._embed, self.preprocess, self.workers = embed, preprocess, max(1, workers)

    def embed(self, pixels: list[Pixels]) -> Views:
        size = self.preprocess.size
        found = self._embed({"images": np.stack(pixels or [np.zeros((size, size, 3), np.uint8)])})
        return Views(found["vec"], found.get("local")).rows(slice(len(pixels)))


class GraphHead:
    """enroll.onnx and score.onnx."""

    def __init__(self, enroll: Graph, score: Graph, *, min_way: int = 1) -> None:
        self._enroll, self._score, self._min_way = enroll, score, min_way

    @property
    def min_way(self) -> int:
        return self._min_way

    def enroll(self, support: Views, label: Labels) -> dict[str, Array]:
        one_hot = np.eye(int(label.max()) + 1, dtype=np.float32)[label]
        return self._enroll({**_arrays(support), "label": one_hot}) | {"n_way": np.array(one_hot.shape[1])}

    def compare(self, state: Any, query: Views) -> Compared:
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
            return Compared(np.empty((0, int(state["n_way"])), np.float32), nothing, parts)
        found = {name: np.concatenate([each[name] for each in turns]) for name in self._score.outputs}
        parts = {name: found[name] for name in PARTS if name in found}
        return Compared(found["logits"], found["open_score"], parts)


def _arrays(views: Views) -> dict[str, Array]:
    return {"vec": views.vec} if views.local is None else {"vec": views.vec, "local": views.local}
