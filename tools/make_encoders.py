"""Make the encoder graphs that ship with the package from the public weights.

    python tools/make_encoders.py [--float32] [FOLDER]

A graph is EfficientNet-Lite0 or -Lite2 with its ImageNet weights, and the whitening of photos-fast or photos-better.
Weights are in half precision; sessions compute in single precision.  ``--float32`` keeps them as they are, for tests of
parity.  The hashes printed last belong into ``glocal/recognizer/encoders/builtin.py``.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.export import Dim

from glocal.recognizer.encoders import builtin
from glocal.research.engine.checkpoint import Model, load_model

SMALL = 256  # numbers up to which a tensor stays in single precision


class Embed(nn.Module):
    """Images (B, size, size, 3) uint8 -> vec, local, and the last map, on which the head ``gel`` was trained."""

    def __init__(self, model: Model, *, with_map: bool) -> None:
        super().__init__()
        self.backbone, self.method, self.with_map = model.backbone, model.method, with_map

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        maps = self.backbone(self.backbone.preprocess.normalize(images.permute(0, 3, 1, 2)))
        views = self.method.embed(maps)
        assert views.local is not None
        last = (maps[:, : self.method.width],) if self.with_map else ()
        return views.vec, views.local, *last


def graph(model: Model, *, with_map: bool) -> bytes:
    """In single precision, batch norm merged into the convolutions before it."""
    module = Embed(model, with_map=with_map).eval().requires_grad_(False)
    size = model.backbone.preprocess.size
    images = torch.randint(0, 256, (2, size, size, 3), dtype=torch.uint8)
    names = [builtin.VEC, builtin.LOCAL, *([builtin.MAP] if with_map else [])]
    program = torch.export.export(module, (images,), dynamic_shapes=({0: Dim.DYNAMIC},), strict=False)
    traced = torch.onnx.export(program, dynamo=True, input_names=["images"], output_names=names, verbose=False)
    assert traced is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "merged.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(traced.model_proto.SerializeToString(), options, ["CPUExecutionProvider"])
        return path.read_bytes()


def halved(data: bytes) -> bytes:
    """With large weights in half precision, each behind a cast that a session does once."""
    model = onnx.load_from_string(data)
    weights, casts = [], []
    for weight in model.graph.initializer:
        numbers = numpy_helper.to_array(weight)
        if numbers.dtype == np.float32 and numbers.size > SMALL:
            half = numpy_helper.from_array(numbers.astype(np.float16), f"{weight.name}_half")
            casts.append(helper.make_node("Cast", [half.name], [weight.name], to=TensorProto.FLOAT))
            weight = half
        weights.append(weight)
    nodes = [*casts, *model.graph.node]
    for node in nodes:
        del node.metadata_props[:]  # lines and paths of the program that made it
        node.doc_string = ""
    del model.graph.initializer[:], model.graph.node[:], model.graph.value_info[:], model.metadata_props[:]
    model.graph.initializer.extend(weights)
    model.graph.node.extend(nodes)
    return model.SerializeToString()


def main(words: list[str]) -> None:
    exact = "--float32" in words
    [folder] = [Path(word) for word in words if word != "--float32"] or [builtin.FOLDER]
    for name, source in (("lite0", "photos-fast"), ("lite2", "photos-better")):
        made = graph(load_model(source), with_map=name == "lite0")
        made = made if exact else halved(made)
        (folder / f"{name}.onnx").write_bytes(made)
        print(name, f"{len(made) / 1e6:.1f} MB", hashlib.sha256(made).hexdigest())


if __name__ == "__main__":
    main(sys.argv[1:])
