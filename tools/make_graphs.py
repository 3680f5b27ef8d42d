"""Make the graphs that ship with the package from the public weights.

    python tools/make_graphs.py [--float32] [FOLDER]

An encoder is EfficientNet-Lite0 or -Lite2 with its ImageNet weights, and the whitening of photos-fast or photos-better;
the head gel is photos-gel.  Weights are stored in half precision, and sessions compute in single precision.
``--float32`` stores them in single precision, for tests of parity.  The hashes that are printed belong into
``glocal/recognizer/encoders/builtin.py``.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor, nn
from torch.export import Dim

from glocal.hub.precision import half_precision
from glocal.recognizer.converted import ENROLL, SCORE
from glocal.recognizer.encoders.builtin import FOLDER
from glocal.recognizer.encoders.encoder import IMAGES, LOCAL, MAP, VEC
from glocal.research.convert import convert
from glocal.research.convert.tracing import Embed, graph_of
from glocal.research.engine.checkpoint import load_model
from glocal.research.methods import Method
from glocal.research.types import normalize

FREE = ({0: Dim.DYNAMIC},)  # any number of photos


class EmbedWithMap(Embed):
    """Also gives the last map, on which the head gel was trained."""

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        maps = self.backbone(normalize(images.permute(0, 3, 1, 2), self.backbone.preprocess))
        views = self.method.embed(maps)
        assert views.local is not None
        return views.vec, views.local, maps[:, : self.method.width]


class Neck(nn.Module):
    """The last map -> vec, local of a method."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, maps: Tensor) -> tuple[Tensor, ...]:
        views = self.method.embed(maps)
        assert views.local is not None
        return views.vec, views.local


def merged(data: bytes) -> bytes:
    """Batch norm merged into the convolutions before it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "merged.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
        return path.read_bytes()


def graphs() -> Iterator[tuple[str, bytes]]:
    """By file name."""
    for name, source, embed, given in (
        ("lite0.onnx", "photos-fast", EmbedWithMap, [VEC, LOCAL, MAP]),
        ("lite2.onnx", "photos-better", Embed, [VEC, LOCAL]),
    ):
        model = load_model(source)
        size = model.backbone.preprocess.size
        images = torch.randint(0, 256, (2, size, size, 3), dtype=torch.uint8)
        yield name, merged(graph_of(embed(model), (images,), FREE, [IMAGES], given))
    gel = load_model("photos-gel")
    maps = torch.rand(2, gel.backbone.channels, 7, 7)
    yield "gel-embed.onnx", graph_of(Neck(gel.method), (maps,), FREE, [MAP], [VEC, LOCAL])
    converted = convert(gel)
    yield "gel-enroll.onnx", converted.graphs[ENROLL]
    yield "gel-score.onnx", converted.graphs[SCORE]


def main(words: list[str]) -> None:
    exact = "--float32" in words
    [folder] = [Path(word) for word in words if word != "--float32"] or [FOLDER]
    for name, single in graphs():
        made = single if exact else half_precision(single)
        (folder / name).write_bytes(made)
        print(name, f"{len(made) / 1e6:.1f} MB", hashlib.sha256(made).hexdigest())


if __name__ == "__main__":
    main(sys.argv[1:])
