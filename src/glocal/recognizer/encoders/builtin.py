"""The graphs that ship with the package; ``tools/make_encoders.py`` makes them from public weights.

``fast`` is EfficientNet-Lite0 as the official TensorFlow release prepares photos for it: the centre 224 of 256 pixels,
bicubic, (x - 127) / 128.  ``better`` has Lite2 beside it, which sees 260 of 297 pixels.  A vector is half the pooled
features and half their square roots, whitened by how photos of one class differ.  A map has the cells of a 4 x 4 grid.
"""

from __future__ import annotations

from pathlib import Path

from glocal.recognizer.photos.images import Preprocess

FOLDER = Path(__file__).parent
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3
LITE0 = "849f75af79699729da95b769ab3240a343b2aa7bd9fb918c3b94ae2253923189"
LITE2 = "8209e6334118b3e0206604ceece555723847c5c3c3ebc6e78a5e7c05ba45dbc3"
FILES = {LITE0: "lite0.onnx", LITE2: "lite2.onnx"}  # by their hashes, which files of recognizers name
PREPROCESS = {
    LITE0: Preprocess(224, 256, MEAN, STD, "bicubic"),
    LITE2: Preprocess(260, 297, MEAN, STD, "bicubic"),
}
ENCODERS = {"fast": (LITE0,), "better": (LITE0, LITE2)}
