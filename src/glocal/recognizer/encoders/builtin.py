"""The graphs that ship with the package; ``tools/make_graphs.py`` makes them from public weights.

``fast`` is EfficientNet-Lite0 with the preparation of the official TensorFlow release: the centre 224 of 256 pixels,
bicubic.  ``better`` has Lite2 beside it, which sees 260 of 297 pixels.  A vector is half the pooled
features and half their square roots, whitened by how photos of one class differ.  A map has the cells of a 4 x 4 grid.
"""

from __future__ import annotations

from pathlib import Path

from glocal.recognizer.photos.images import Preprocess

LICENCE = "apache-2.0"  # of the weights of EfficientNet-Lite
FOLDER = Path(__file__).parents[1] / "graphs"
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3
LITE0 = "849f75af79699729da95b769ab3240a343b2aa7bd9fb918c3b94ae2253923189"
LITE2 = "8209e6334118b3e0206604ceece555723847c5c3c3ebc6e78a5e7c05ba45dbc3"
GEL_EMBED = "e8aa545c9391cc31142f37480111812c0ddea5d68419f24704201073ba8330dc"  # from the last map of LITE0
GEL_ENROLL = "6d7578e8e9da87677e6b443ff2474779b7e6cdfeeefcc91b880627cda46e5e4d"
GEL_SCORE = "ea828eb2134ec752ce909b2c241d54230a35ffac224a548a01f85bd7f1bb48a9"
GEL_SCORES = ("E", "E_c", "E_f", "entropy", "doubt", "distance", "energy", "margin")
FILES = {  # by their hashes, which files of recognizers name
    LITE0: "lite0.onnx",
    LITE2: "lite2.onnx",
    GEL_EMBED: "gel-embed.onnx",
    GEL_ENROLL: "gel-enroll.onnx",
    GEL_SCORE: "gel-score.onnx",
}
PREPROCESS = {
    LITE0: Preprocess(224, 256, MEAN, STD, "bicubic"),
    LITE2: Preprocess(260, 297, MEAN, STD, "bicubic"),
}
ENCODERS = {"fast": (LITE0,), "better": (LITE0, LITE2)}
