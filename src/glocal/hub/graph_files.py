"""Folders laid out as hub repositories with ONNX graphs are, and single graphs.

onnx/model.onnx            or vision_model.onnx, where the graph model.onnx reads text too
onnx/model_fp16.onnx       the same in half precision; model_quantized.onnx in 8 bits, and others by their endings
onnx/model.onnx_data       weights of a graph that is larger than protobuf allows
preprocessor_config.json   and config.json, README.md
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from glocal.common.errors import DataError
from glocal.common.words import listed

STEMS = ("vision_model", "model")  # the first there is
PLAIN = "model"  # the graph without an ending
LARGEST = 2**31 - 1  # bytes of a graph with its weights, which protobuf allows


def graph_among(names: Iterable[str], variant: str) -> str | None:
    """The name of the graph, if there is any: "model", or by its ending such as fp16, or its path."""
    graphs = sorted(name for name in names if name.endswith(".onnx"))
    if variant in graphs or not graphs:
        return variant if graphs else None
    ending = "" if variant == PLAIN else f"_{variant}"
    fitting = [name for stem in STEMS for name in graphs if PurePosixPath(name).stem == stem + ending]
    fitting += graphs if variant == PLAIN and len(graphs) == 1 else []
    if not fitting:
        raise DataError(
            f"there is no graph {variant!r} among {listed(graphs)}; choose one with --graph, by its path or its ending",
            code="no-graph",
        )
    return fitting[0]


def load_graph(path: Path, within: Path) -> onnx.ModelProto:
    """A graph with all of its weights, which are read from files beside it and nowhere else."""
    try:
        if not path.is_file():  # opening a named pipe would wait for ever
            raise ValueError("there is no such file")
        model = onnx.load_from_string(path.read_bytes())
        room = LARGEST - path.stat().st_size
        for tensor in model.graph.initializer:
            if tensor.data_location == TensorProto.EXTERNAL:
                tensor.raw_data = _beside(tensor, path, within, room)
                room -= len(tensor.raw_data)
                tensor.data_location = TensorProto.DEFAULT
                del tensor.external_data[:]
    except (OSError, ValueError, DecodeError) as error:
        raise DataError(
            f"{path} is no ONNX graph that can be used: {str(error)[:300]}", code="no-encoder-graph"
        ) from error
    return model


def _beside(tensor: TensorProto, graph: Path, within: Path, room: int) -> bytes:
    """The bytes of a tensor whose weights lie in a file beside the graph."""
    about = {each.key: each.value for each in tensor.external_data}
    name = about.get("location", "")
    place = graph.parent / name
    if (
        PurePosixPath(name).name != name
        or "\\" in name
        or not place.is_file()
        or not place.resolve().is_relative_to(within.resolve())
    ):
        raise ValueError(f"its weights are in {name[:80]!r}, and only a file beside it is read")
    size = place.stat().st_size
    offset = int(about.get("offset", 0))
    length = int(about.get("length", size - offset))
    if min(offset, length) < 0 or offset + length > size:
        raise ValueError(f"its weights in {name} are cut short")
    if length > room:
        raise ValueError("with its weights it is larger than 2 GiB; choose a smaller one with --graph fp16")
    with place.open("rb") as file:
        file.seek(offset)
        return file.read(length)
