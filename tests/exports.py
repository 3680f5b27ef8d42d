"""Exports of small recognizers; tracing takes seconds, so each model is traced once."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from unittest.mock import patch

from glocal.export import export as exporting
from glocal.export.export import Exported, export
from glocal.export.graphs import trace
from glocal.recognizer import Recognizer
from photos import recognizer


@cache
def graphs(model: str) -> dict[str, bytes]:
    return trace(recognizer(model=model).contents.brain.model)


def traced_once(who: Recognizer, folder: Path, *, int8: bool = False) -> Exported:
    """``export`` of a recognizer with a shipped model."""
    with patch.object(exporting, "trace", lambda _: graphs(who.contents.brain.name)):
        return export(who, folder, int8=int8)
