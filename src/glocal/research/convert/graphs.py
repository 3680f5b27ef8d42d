"""A model as the three ONNX graphs of ``glocal.recognizer.model``: its own modules, traced; with 8-bit convolutions
a quarter of the size, and faster where a processor has instructions for it.
"""

from __future__ import annotations

import copy
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim

from glocal.common.errors import RecipeError
from glocal.recognizer.model import EMBED, ENROLL, PARTS, SCORE, STATE
from glocal.recognizer.photos.images import Pixels
from glocal.research.engine.checkpoint import Model
from glocal.research.methods import Method
from glocal.research.types import Views

EXAMPLE = 2  # pictures that are traced; 1 would become a fixed number
# Photos of each class of two tasks of different sizes: a side of the state that differs between them is free.
TASKS = ((3, 2, 4, 2, 2), (2, 5, 3, 2, 4, 2, 3))
QUERIES = 6
BATCH = 8
LAYERS = ["Conv", "Gemm", "MatMul"]  # what takes the time; the few other steps stay as exact as they are


class Embed(nn.Module):
    """Backbone and embedding: images (B, size, size, 3) uint8 -> vec, local."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.backbone, self.method = model.backbone, model.method

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        maps = self.backbone(self.backbone.preprocess.normalize(images.permute(0, 3, 1, 2)))
        return _tensors(self.method.embed(maps))


class Enroll(nn.Module):
    """vec, local, one-hot label (S, N) -> the state."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, label: Tensor, vec: Tensor, local: Tensor | None = None) -> tuple[Tensor, ...]:
        return tuple(self.method.enroll(Views(vec, local), label))


class Score(nn.Module):
    """The state, and vec, local of queries -> logits, open score, parts."""

    def __init__(self, method: Method, kind: Any) -> None:
        super().__init__()
        self.method, self.kind = method, kind

    def forward(self, state: list[Tensor], vec: Tensor, local: Tensor | None = None) -> tuple[Tensor, ...]:
        comparison = self.method.compare(self.kind(*state), Views(vec, local))
        parts = [comparison.own[name]() for name in PARTS if name in comparison.own]
        return (comparison.logits, comparison.open_score(self.method.open_score), *parts)


def trace(model: Model) -> dict[str, bytes]:
    """The graphs by file name.  The model stays as it is."""
    model = copy.deepcopy(model)
    backbone, method = model.backbone.to("cpu").eval(), model.method.to("cpu").eval()
    for module in (backbone, method):
        module.requires_grad_(False)
    size = backbone.preprocess.size
    with torch.no_grad():
        images = torch.randint(0, 256, (EXAMPLE, size, size, 3), dtype=torch.uint8)
        seen = method.embed(backbone(backbone.preprocess.normalize(images.permute(0, 3, 1, 2))))
        views = [name for name, x in (("vec", seen.vec), ("local", seen.local)) if x is not None]
        tasks = [_task(seen, shots) for shots in TASKS]
        states = [method.enroll(support, label) for support, label in tasks]
        query = _random(seen, QUERIES)
        comparison = method.compare(states[0], query)
        scores = ["logits", "open_score", *(name for name in PARTS if name in comparison.own)]
        kept = [f"{STATE}{i}" for i in range(len(states[0]))]
        free = [_free(*pair) for pair in zip(*states, strict=True)]
        rows = tuple({0: Dim.DYNAMIC} for _ in views)
        support, label = tasks[0]
        return {
            EMBED: _graph(Embed(model), (images,), ({0: Dim.DYNAMIC},), ["images"], views),
            ENROLL: _graph(
                Enroll(method),
                (label, *_tensors(support)),
                ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, *rows),
                ["label", *views],
                kept,
            ),
            SCORE: _graph(
                Score(method, type(states[0])),
                (list(states[0]), *_tensors(query)),
                (free, *rows),
                [*kept, *views],
                scores,
            ),
        }


def _graph(
    module: nn.Module, example: tuple[Any, ...], free: tuple[Any, ...], inputs: list[str], outputs: list[str]
) -> bytes:
    with _quiet("torch.onnx._internal.exporter._registration", "onnx_ir"):
        try:
            program = torch.export.export(module.eval(), example, dynamic_shapes=free, strict=False)
            traced = torch.onnx.export(program, dynamo=True, input_names=inputs, output_names=outputs, verbose=False)
        except Exception as error:  # the exporter's own errors have no common class
            what = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise RecipeError(
                f"this model cannot become an ONNX graph: its {type(module).__name__.lower()} does something that the "
                f"exporter of torch {torch.__version__} does not know ({what}); use another method, such as gel"
            ) from error
    assert traced is not None
    proto = traced.model_proto
    for nodes in (proto.graph.node, *(function.node for function in proto.functions)):
        for node in nodes:
            del node.metadata_props[:]  # lines and paths of the program that made it
    graph: bytes = proto.SerializeToString()
    return graph


@contextmanager
def _quiet(*loggers: str) -> Iterator[None]:
    """What exporter and quantizer tell (no torchvision, a constant output, to do what was just done, a part of torch
    that it calls outdated itself) is nothing that whoever exports can mend."""
    logs = [logging.getLogger(name) for name in loggers]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
            yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


def _tensors(views: Views) -> tuple[Tensor, ...]:
    return (views.vec,) if views.local is None else (views.vec, views.local)


def _task(like: Views, shots: tuple[int, ...]) -> tuple[Views, Tensor]:
    label = torch.repeat_interleave(torch.arange(len(shots)), torch.tensor(shots))
    return _random(like, len(label)), torch.nn.functional.one_hot(label).float()


def _random(like: Views, n: int) -> Views:
    """n views of the same shape."""
    local = None if like.local is None else torch.randn(n, *like.local.shape[1:])
    return Views(torch.randn(n, *like.vec.shape[1:]), local)


def _free(one: Tensor, other: Tensor) -> dict[int, Any]:
    """Sides that follow the number of photos or classes."""
    return {side: Dim.DYNAMIC for side in range(one.ndim) if one.shape[side] != other.shape[side]}


def int8(embed: bytes, pictures: Sequence[Pixels]) -> bytes:
    """The graph with weights and activations of 8 bits, scaled by what these pictures (size, size, 3) show of them."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder, _quiet("root"):
        paths = [Path(folder) / name for name in ("float.onnx", "prepared.onnx", "int8.onnx")]
        paths[0].write_bytes(embed)
        quant_pre_process(paths[0], paths[1], skip_symbolic_shape=True)  # merges batch norm into its convolution
        quantize_static(
            paths[1],
            paths[2],
            _Batches(pictures),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=LAYERS,
            per_channel=True,
            reduce_range=True,  # 7 bits for weights: with 8, processors without VNNI overflow and answer otherwise
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return paths[2].read_bytes()


class _Batches:
    """Hands out the pictures as quantize_static asks for them."""

    def __init__(self, pictures: Sequence[Pixels]) -> None:
        starts = range(0, len(pictures), BATCH)
        self._batches = iter([{"images": np.stack(pictures[start : start + BATCH])} for start in starts])

    def get_next(self) -> dict[str, Pixels] | None:
        return next(self._batches, None)

    def __iter__(self) -> Iterator[dict[str, Pixels]]:
        return self._batches
