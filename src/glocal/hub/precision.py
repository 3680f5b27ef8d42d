"""Smaller graphs of the same network: 8-bit layers, or weights of half precision."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from glocal.recognizer.photos.images import Pixels

BATCH = 8
LAYERS = ["Conv", "Gemm", "MatMul"]  # these take the time; the few other steps stay exact
SMALLEST = 1024  # numbers; smaller weights stay in float32
LARGEST_HALF = 6e4


def half_precision(graph: bytes) -> bytes:
    """Weights stored as float16 and widened when the graph is loaded: half the size, the same time."""
    model = onnx.load_from_string(graph)
    for weight in [*model.graph.initializer]:
        values = numpy_helper.to_array(weight)
        if weight.data_type != TensorProto.FLOAT or values.size < SMALLEST or np.abs(values).max() > LARGEST_HALF:
            continue
        name = weight.name
        weight.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}_half"))
        model.graph.node.insert(0, helper.make_node("Cast", [weight.name], [name], to=TensorProto.FLOAT))
    narrow: bytes = model.SerializeToString()
    return narrow


def int8_layers(graph: bytes, images: Pixels) -> bytes:
    """Weights and activations of 8 bits, scaled by what these images (B, size, size, 3) show of them."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder, quiet("root"):
        paths = [Path(folder) / name for name in ("float.onnx", "prepared.onnx", "int8.onnx")]
        paths[0].write_bytes(graph)
        quant_pre_process(paths[0], paths[1], skip_symbolic_shape=True)  # merges batch norm into its convolution
        quantize_static(
            paths[1],
            paths[2],
            _Batches(images),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=LAYERS,
            per_channel=True,
            reduce_range=True,  # 7 bits for weights: with 8, processors without VNNI overflow and answer otherwise
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return paths[2].read_bytes()


class _Batches:
    """The images in the form that quantize_static reads."""

    def __init__(self, images: Pixels) -> None:
        self._batches = iter([{"images": images[start : start + BATCH]} for start in range(0, len(images), BATCH)])

    def get_next(self) -> dict[str, Pixels] | None:
        return next(self._batches, None)

    def __iter__(self) -> Iterator[dict[str, Pixels]]:
        return self._batches


@contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Hides what exporter and quantizer log and a user cannot act on."""
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
