"""Answers from an exported recognizer, without PyTorch: numpy, Pillow and onnxruntime only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glocal_runtime.eye import Unreadable
    from glocal_runtime.prediction import Prediction
    from glocal_runtime.recognizer import Recognizer

__all__ = ["Prediction", "Recognizer", "Unreadable"]

_HOMES = {"Prediction": "prediction", "Recognizer": "recognizer", "Unreadable": "eye"}


def __getattr__(name: str) -> Any:
    """Loaded when asked for: glocal uses parts of this package and need not have onnxruntime."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
