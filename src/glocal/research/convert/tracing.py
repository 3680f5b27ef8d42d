"""A trained model as the three ONNX graphs of ``glocal.recognizer.converted``: its own modules, traced by torch."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from glocal.common.errors import RecipeError
from glocal.hub.precision import quiet, stripped
from glocal.recognizer.converted import EMBED, ENROLL, SCORE, STATE
from glocal.research.engine.checkpoint import TrainedModel
from glocal.research.methods import Method
from glocal.research.methods.ridge import KernelRidge
from glocal.research.ops.similarity import cell_shares
from glocal.research.types import Views, normalize, to_one_hot

IMAGES = 2  # in the example that is traced; a single one would become a fixed number
# Photos of each class of two tasks of different sizes: a side of the state that differs between them is free.
TASKS = ((3, 2, 4, 2, 2), (2, 5, 3, 2, 4, 2, 3))
QUERIES = 6
PAGE = 'see "A method as graphs" in docs/how-to/add-a-method.md'
LIBRARIES = Path(torch.__file__).parents[1]


class Embed(nn.Module):
    """Backbone and embedding: images (B, size, size, 3) uint8 -> vec, local."""

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self.backbone, self.method = model.backbone, model.method

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        maps = self.backbone(normalize(images.permute(0, 3, 1, 2), self.backbone.preprocess))
        return _tensors(self.method.embed(maps))


class Enroll(nn.Module):
    """One-hot label (S, N), vec, local -> the state."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, label: Tensor, vec: Tensor, local: Tensor | None = None) -> tuple[Tensor, ...]:
        return tuple(self.method.enroll(Views(vec, local), label))


class Score(nn.Module):
    """The state, and vec, local of queries -> logits and every open score that the method names."""

    def __init__(self, method: Method, kind: Any) -> None:
        super().__init__()
        self.method, self.kind = method, kind

    def forward(self, state: list[Tensor], vec: Tensor, local: Tensor | None = None) -> tuple[Tensor, ...]:
        comparison = self.method.compare(self.kind(*state), Views(vec, local))
        return (comparison.logits, *(comparison.scores[name] for name in self.method.score_names))


def trace(model: TrainedModel) -> dict[str, bytes]:
    """The graphs by file name.  The model stays as it is."""
    if model.method.transductive:
        raise RecipeError(
            "a transductive method cannot be converted: it scores the queries of a task together. "
            "Convert an inductive method, such as gel",
            code="transductive",
        )
    if isinstance(model.method, KernelRidge):
        raise RecipeError(
            "the method ridge decides in numpy and needs no graph; "
            "enroll with --encoder fast or better and --head ridge",
            code="needs-no-graph",
        )
    model = copy.deepcopy(model).to("cpu").eval()
    backbone, method = model.backbone, model.method
    for module in (backbone, method):
        module.requires_grad_(False)
    size = backbone.preprocess.size
    images = torch.randint(0, 256, (IMAGES, size, size, 3), dtype=torch.uint8)
    with torch.no_grad():
        views = Views(*Embed(model)(images))
        inputs = ["vec"] if views.local is None else ["vec", "local"]
        rows = tuple({0: Dim.DYNAMIC} for _ in inputs)
        tasks = [_task(views, shots) for shots in TASKS]
        states = [method.enroll(support, label) for support, label in tasks]
        kept = [f"{STATE}{i}" for i in range(len(states[0]))]
        free = [_free_sides(*pair) for pair in zip(*states, strict=True)]
        support, label = tasks[0]
        labels = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
        scored = ["logits", *method.score_names]
        example = (list(states[0]), *_tensors(_random(views, QUERIES)))
        return {
            EMBED: graph_of(Embed(model), (images,), ({0: Dim.DYNAMIC},), ["images"], inputs),
            ENROLL: graph_of(Enroll(method), (label, *_tensors(support)), (labels, *rows), ["label", *inputs], kept),
            SCORE: graph_of(Score(method, type(states[0])), example, (free, *rows), [*kept, *inputs], scored),
        }


def graph_of(
    module: nn.Module, example: tuple[Any, ...], free: tuple[Any, ...], inputs: Sequence[str], outputs: Sequence[str]
) -> bytes:
    """A module with the sides of its inputs that are free, traced by torch."""
    with quiet():
        try:
            program = torch.export.export(module.eval(), example, dynamic_shapes=free, strict=False)
            own = [f"{name}:out" for name in outputs]  # a score may be called as a value inside of the graph is
            traced = torch.onnx.export(program, dynamo=True, input_names=inputs, output_names=own, verbose=False)
        except Exception as error:  # the exporter's own errors have no common class
            line = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise RecipeError(
                f"this model cannot be converted: torch {torch.__version__} cannot trace {_last_line(error)} in "
                f"{type(module).__name__.lower()} ({line}); {PAGE}",
                code="no-graph",
            ) from error
        finally:
            cell_shares.cache_clear()  # a table that was made while tracing cannot be computed with afterwards
    assert traced is not None
    proto = traced.model_proto
    names = {name: f"{name}:inside" for name in outputs} | dict(zip(own, outputs, strict=True))
    for node in proto.graph.node:
        for each in (node.input, node.output):
            each[:] = [names.get(name, name) for name in each]
    for value in (*proto.graph.output, *proto.graph.value_info, *proto.graph.initializer):
        value.name = names.get(value.name, value.name)
    return stripped(proto)


def _last_line(error: BaseException) -> str:
    """File and line outside of installed libraries where tracing ended."""
    while error.__cause__ is not None and not _own_lines(error):
        error = error.__cause__
    own = _own_lines(error)
    return f"{Path(own[-1].filename).name}:{own[-1].lineno} `{own[-1].line}`" if own else "the model"


def _own_lines(error: BaseException) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    return [each for each in frames if LIBRARIES not in Path(each.filename).parents and each.filename != __file__]


def _tensors(views: Views) -> tuple[Tensor, ...]:
    return (views.vec,) if views.local is None else (views.vec, views.local)


def _task(like: Views, shots: tuple[int, ...]) -> tuple[Views, Tensor]:
    label = torch.repeat_interleave(torch.arange(len(shots)), torch.tensor(shots))
    return _random(like, len(label)), to_one_hot(label)


def _random(like: Views, n: int) -> Views:
    """n views of the same shape."""
    local = None if like.local is None else torch.randn(n, *like.local.shape[1:])
    return Views(torch.randn(n, *like.vec.shape[1:]), local)


def _free_sides(one: Tensor, other: Tensor) -> dict[int, Any]:
    """Sides that follow the number of photos or classes."""
    return {side: Dim.DYNAMIC for side in range(one.ndim) if one.shape[side] != other.shape[side]}
