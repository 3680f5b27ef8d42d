"""From a photo to a decision, by numpy, Pillow and onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glocal.recognizer.photos.sources import Unreadable
    from glocal.recognizer.prediction import Prediction
    from glocal.recognizer.recognizer import Recognizer

__all__ = ["Prediction", "Recognizer", "Unreadable"]

_HOMES = {"Prediction": "prediction", "Recognizer": "recognizer", "Unreadable": "photos.sources"}


def __getattr__(name: str) -> Any:
    """Loaded when asked for: most of glocal uses small parts of this package only."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
