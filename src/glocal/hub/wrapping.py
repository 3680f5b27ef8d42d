"""An ONNX graph of another program as the graph of an encoder.

    images (B, size, size, 3) uint8  ->  normalised pixels  ->  the graph as it is  ->  vec (B, D), local (B, C, h, w)

Which output is which follows from names that hub repositories share and from the shapes that a trial gives.  Tokens
(B, T, C) become a map without the class token and the registers; a map is averaged to a grid of 4 x 4 cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, compose, helper, numpy_helper

from glocal.common.errors import DataError
from glocal.common.words import listed
from glocal.hub.about import About
from glocal.hub.measuring import sketches
from glocal.hub.precision import stripped
from glocal.recognizer.encoders.encoder import IMAGES, LOCAL, VEC
from glocal.recognizer.encoders.session import Graph
from glocal.recognizer.features import Array
from glocal.recognizer.photos.images import Preprocess

INSIDE = "inside/"  # before all names of the graph as it is
GIVEN = "given/"  # before the names of its outputs in single precision: they may be called vec or local
VECTORS = ("image_embeds", "pooler_output")  # in the order of preference
HIDDEN = "last_hidden_state"
CLASSIFIED = "logits"  # of the classes it was trained on: no vector of an encoder
NUMBERS = (TensorProto.FLOAT, TensorProto.FLOAT16)
CELLS = 4  # a side of the grid that a map is averaged to
TRIED = 2  # photos: a graph that takes a single one only fails with them
END = 2**31  # of a slice: behind any token


class Steps:
    """Nodes of a graph, one after the other; each gives one value, whose name is returned."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.nodes = prefix, list[onnx.NodeProto]()

    def __call__(self, kind: str, *inputs: str | Array, name: str = "", **attributes: Any) -> str:
        """Arrays among the inputs become constants."""
        names = [
            each if isinstance(each, str) else self("Constant", value=numpy_helper.from_array(each)) for each in inputs
        ]
        made = name or f"{self.prefix}/{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [made], **attributes))
        return made


class Patches(NamedTuple):
    """An output with a vector for each part of a photo."""

    name: str
    first: int  # tokens before those of patches
    axes: tuple[int, ...]  # that bring it to (B, C, ...)
    channels: int
    height: int
    width: int

    def flat(self, steps: Steps) -> str:
        """(B, C, P)."""
        at = GIVEN + self.name
        if self.first:
            at = steps("Slice", at, _whole(self.first), _whole(END), _whole(1))
        turned = steps("Transpose", at, perm=self.axes)
        return steps("Reshape", turned, _whole(0, self.channels, self.height * self.width))


def wrap(model: onnx.ModelProto, preprocess: Preprocess, about: About, where: str) -> tuple[bytes, dict[str, str]]:
    """The graph of an encoder and what its outputs are in the one given, or a sentence that names ``where``."""
    names = _take_images(model, preprocess, where)
    tried = _try(model.SerializeToString(), names, preprocess.size, where)
    vector, hidden = _chosen(tried, about, where)
    patches = None if hidden is None else _patches(hidden, tried[hidden].shape, about, where)
    steps, outputs = Steps("outside"), {VEC: vector or ""}
    last = GIVEN + outputs[VEC]
    if patches is not None:
        flat, outputs[LOCAL] = patches.flat(steps), patches.name
        rows, columns = min(patches.height, CELLS), min(patches.width, CELLS)
        cells = steps("MatMul", flat, averages(patches.height, patches.width, rows, columns))
        steps("Reshape", cells, _whole(0, patches.channels, rows, columns), name=LOCAL)
        if vector is None and patches.first:
            last = steps("Slice", GIVEN + patches.name, _whole(0), _whole(1), _whole(1))
            outputs[VEC] = f"first token of {patches.name}"
        elif vector is None:
            last = steps("MatMul", flat, averages(patches.height, patches.width, 1, 1))
            outputs[VEC] = f"mean of {patches.name}"
    steps("Flatten", last, name=VEC, axis=1)
    model.graph.node.extend(steps.nodes)
    _give(model.graph, list(outputs))
    return stripped(model), outputs


def averages(height: int, width: int, rows: int, columns: int) -> Array:
    """(height * width, rows * columns): a product with it averages patches into cells, as adaptive pooling does."""

    def shares(size: int, cells: int) -> Array:
        share = np.zeros((size, cells))
        for i in range(cells):
            start, stop = i * size // cells, -(-(i + 1) * size // cells)
            share[start:stop, i] = 1 / (stop - start)
        return share

    return np.kron(shares(height, rows), shares(width, columns)).astype(np.float32)


def _take_images(model: onnx.ModelProto, preprocess: Preprocess, where: str) -> list[str]:
    """Let the graph take photos and give its outputs in single precision; their names."""
    compose.add_prefix(model, INSIDE, inplace=True)
    graph = model.graph
    weights = {each.name for each in graph.initializer}
    inputs = [each for each in graph.input if each.name not in weights]
    kinds = [(each.type.tensor_type.elem_type, len(each.type.tensor_type.shape.dim)) for each in inputs]
    if kinds not in ([(kind, 4)] for kind in NUMBERS):
        taken_names = listed([each.name.removeprefix(INSIDE) for each in inputs])
        raise DataError(
            f"{where} is no encoder of pictures: it must take pixels (B, 3, H, W) of floating point and nothing else, "
            f"and it takes {taken_names or 'nothing'}; choose a graph of the vision part",
            code="no-encoder-graph",
        )
    [taken], [(kind, _)] = inputs, kinds
    sides = [each.dim_value for each in taken.type.tensor_type.shape.dim]
    steps = Steps("before")
    numbers = steps("Cast", IMAGES, to=TensorProto.FLOAT)
    moved = steps("Sub", numbers, 255 * np.array(preprocess.mean, np.float32))
    pixels = steps("Div", moved, 255 * np.array(preprocess.std, np.float32))
    if sides[3] != 3 or sides[1] == 3:  # otherwise channels come last, as TensorFlow has them
        pixels = steps("Transpose", pixels, perm=[0, 3, 1, 2])
    steps("Cast", pixels, name=taken.name, to=kind)
    after = Steps("after")
    given = [each.name for each in graph.output if each.type.tensor_type.elem_type in NUMBERS]
    names = [after("Cast", name, name=GIVEN + name.removeprefix(INSIDE), to=TensorProto.FLOAT) for name in given]
    nodes = [*steps.nodes, *graph.node, *after.nodes]
    del graph.node[:], graph.input[:]
    graph.node.extend(nodes)
    size = preprocess.size
    graph.input.append(helper.make_tensor_value_info(IMAGES, TensorProto.UINT8, ["B", size, size, 3]))
    _give(graph, names)
    return names


def _give(graph: onnx.GraphProto, names: Sequence[str]) -> None:
    del graph.output[:]
    graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)


def _try(graph: bytes, outputs: Sequence[str], size: int, where: str) -> dict[str, Array]:
    """What it gives for made-up photos, by name, where that has a row for each."""
    try:
        arrays = Graph(graph, where)({IMAGES: sketches(TRIED, size)}, outputs) if outputs else []
    except DataError as error:
        raise DataError(
            f"{where} does not answer {TRIED} photos of {size} pixels at once: {error}", code="no-encoder-graph"
        ) from error
    named = zip((name.removeprefix(GIVEN) for name in outputs), arrays, strict=True)
    return {name: each for name, each in named if each.ndim and len(each) == TRIED}


def _chosen(tried: Mapping[str, Array], about: About, where: str) -> tuple[str | None, str | None]:
    """The outputs that are the vector and the patches; one of them may be none."""
    for name in (about.vector, about.map):
        if name is not None and name not in tried:
            raise DataError(
                f"{where} has no output {name!r} with a row for each photo; it has {listed(list(tried)) or 'none'}",
                code="no-output",
            )
    wide = [name for name, each in tried.items() if each.ndim in (3, 4) and not _is_vector(each)]
    hidden = about.map or (HIDDEN if HIDDEN in wide else wide[0] if len(wide) == 1 else None)
    unused = {CLASSIFIED, *(["pooler_output"] if about.tanh_pooled and hidden else [])}
    flat = [name for name, each in tried.items() if _is_vector(each) and name not in unused]
    vector = about.vector or next((name for name in VECTORS if name in flat), flat[0] if len(flat) == 1 else None)
    if vector is None and hidden is None:
        shapes = listed([f"{name} {each.shape}" for name, each in tried.items()])
        raise DataError(
            f"{where} has no output that is clearly the vector (B, D), tokens (B, T, C) or a map (B, C, h, w) of a "
            f"photo: {shapes or 'nothing'}; name it in a TOML file (vector, map) with --about",
            code="no-output",
        )
    return vector, hidden


def _is_vector(each: Array) -> bool:
    """(B, D), or (B, D, 1, 1) of a convolutional network."""
    return each.ndim == 2 or (each.ndim == 4 and each.shape[2:] == (1, 1))


def _patches(name: str, shape: tuple[int, ...], about: About, where: str) -> Patches:
    if len(shape) == 4 and shape[1] == shape[2] != shape[3]:  # channels come last
        return Patches(name, 0, (0, 3, 1, 2), shape[3], shape[1], shape[2])
    if len(shape) == 4:
        return Patches(name, 0, (0, 1, 2, 3), *shape[1:])
    for first in (1 + about.registers, 0) if about.leading is None else (about.leading,):
        side = math.isqrt(max(0, shape[1] - first))
        if side and first >= 0 and first + side**2 == shape[1]:
            return Patches(name, first, (0, 2, 1), shape[2], side, side)
    raise DataError(
        f"{where} gives {shape[1]} tokens, and those of patches must fill a square; say in a TOML file (leading) how "
        "many come before them, with --about",
        code="no-output",
    )


def _whole(*numbers: int) -> Array:
    return np.array(numbers, np.int64)
