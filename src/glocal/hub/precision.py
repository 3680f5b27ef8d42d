"""Smaller graphs of the same network: 8-bit layers, or weights of half precision."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from glocal.hub.measuring import COMPARED, photos, sketches
from glocal.recognizer.photos.images import Pixels, Preprocess

BATCH = 8
LAYERS = ["Conv", "Gemm", "MatMul"]  # these take the time; the few other steps stay exact
SMALLEST = 256  # numbers up to which weights stay in single precision
LARGEST_HALF = 6e4


def smaller_graph(graph: bytes, preprocess: Preprocess, int8: str | Path | None) -> tuple[bytes, str, Pixels]:
    """In half precision, or 8-bit layers scaled by the photos in a folder; its precision, and pictures to compare."""
    if int8 is None:
        return half_precision(graph), "half", sketches(COMPARED, preprocess.size)
    images = photos(int8, preprocess)
    return int8_layers(graph, images), "int8", images


def half_precision(graph: bytes) -> bytes:
    """Weights stored as float16 and widened when the graph is loaded: half the size, the same time."""
    model = onnx.load_from_string(graph)
    casts = []
    for weight in model.graph.initializer:
        values = numpy_helper.to_array(weight)
        if weight.data_type == TensorProto.FLOAT and values.size > SMALLEST and np.abs(values).max() <= LARGEST_HALF:
            name = weight.name
            weight.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}_half"))
            casts.append(helper.make_node("Cast", [weight.name], [name], to=TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:], model.graph.value_info[:]
    model.graph.node.extend(nodes)
    return stripped(model)


def stripped(model: onnx.ModelProto) -> bytes:
    """Without the lines and paths of the program that made it."""
    del model.metadata_props[:]
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in nodes:
            del node.metadata_props[:]
            node.doc_string = ""
    data: bytes = model.SerializeToString()
    return data


def int8_layers(graph: bytes, images: Pixels) -> bytes:
    """Weights and activations of 8 bits, scaled by what these images (B, size, size, 3) show of them."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    batches = ({"images": images[start : start + BATCH]} for start in range(0, len(images), BATCH))
    with tempfile.TemporaryDirectory() as folder, quiet():
        paths = [Path(folder) / name for name in ("float.onnx", "prepared.onnx", "int8.onnx")]
        paths[0].write_bytes(graph)
        quant_pre_process(paths[0], paths[1], skip_symbolic_shape=True)  # merges batch norm into its convolution
        quantize_static(
            paths[1],
            paths[2],
            SimpleNamespace(get_next=partial(next, batches, None)),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=LAYERS,
            per_channel=True,
            reduce_range=True,  # 7 bits for weights: with 8, processors without VNNI overflow and answer otherwise
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return paths[2].read_bytes()


@contextmanager
def quiet() -> Iterator[None]:
    """Hides what exporter and quantizer log and a user cannot act on."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
            yield
    finally:
        logging.disable(before)
