"""Small models as graphs; tracing takes seconds, so each is traced once in a test run."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from filelock import FileLock

from glocal.recognizer.converted import ConvertedModel
from glocal.research.convert import convert
from tiny_models import tiny_model


@cache
def model_file(name: str = "embedded-gel", **settings: Any) -> Path:
    """The file of a shipped model, or with ``tiny:METHOD`` of an untrained one of that method."""
    described = "-".join([name.replace(":", "-"), *(f"{key}-{value}" for key, value in settings.items())])
    place = Path(os.environ.get("GLOCAL_TEST_RUN") or mkdtemp()) / f"{described}.model"
    with FileLock(place.with_suffix(".lock")):
        if not place.exists():
            _, tiny, method = name.partition("tiny:")
            convert(tiny_model(method, **settings) if tiny else name).write(place)
    return place


def converted(name: str = "embedded-gel", **settings: Any) -> ConvertedModel:
    return ConvertedModel.read(model_file(name, **settings))
