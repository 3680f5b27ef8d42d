"""Exports of small recognizers; tracing takes twenty seconds, so each model is traced once."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

from filelock import FileLock

from glocal.recognizer import Recognizer
from glocal.recognizer.model import OnnxModel
from glocal.research.convert import onnx as exporting
from glocal.research.convert.onnx import Exported, export, with_model
from glocal.research.convert.tracing import trace
from photos import recognizer


@cache
def graphs(model: str) -> dict[str, bytes]:
    """Of the first of the processes of this test run that asks; the others read them."""
    place = Path(os.environ.get("GLOCAL_TEST_RUN") or mkdtemp()) / f"graphs-{model}.pkl"
    with FileLock(place.with_suffix(".lock")):
        if not place.exists():
            place.write_bytes(pickle.dumps(trace(recognizer(model=model).contents.model.model)))
        return pickle.loads(place.read_bytes())


def traced_once(who: Recognizer, path: Path, *, int8: bool = False) -> Exported:
    """``export`` of a recognizer with a shipped model."""
    with patch.object(exporting, "trace", lambda _: graphs(who.contents.model.name)):
        return export(who, path, int8=int8)


@cache
def onnx_model(model: str = "embedded-gel") -> OnnxModel:
    source = recognizer(model=model).contents.model
    about = (source.name, source.method, source.open_score, source.min_way, source.preprocess)
    return OnnxModel(*about, graphs(model), source.takes_unknown)


def onnx_recognizer(shots: Mapping[str, int] | None = None, *, model: str = "embedded-gel") -> Recognizer:
    """As ``photos.recognizer``, with graphs."""
    return with_model(recognizer(shots, model=model).contents, onnx_model(model))
