"""glocal: few-shot open-set recognition.

Teach it classes from a handful of pictures; it names what it knows and says "unknown" to what it does not.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from glocal.common.errors import GlocalError
    from glocal.recognizer import Recognizer
    from glocal.research import backbones, data, methods, metrics
    from glocal.research.data import open_dataset
    from glocal.research.engine.checkpoint import load_model
    from glocal.research.engine.compare import compare
    from glocal.research.engine.evaluate import evaluate

# Imported when first used, because torch takes seconds.
_HOMES = {
    "GlocalError": "glocal.common.errors",
    "Recognizer": "glocal.recognizer",
    "compare": "glocal.research.engine.compare",
    "evaluate": "glocal.research.engine.evaluate",
    "load_model": "glocal.research.engine.checkpoint",
    "open_dataset": "glocal.research.data",
}
_PACKAGES = ("backbones", "data", "methods", "metrics")  # whose registries take more entries

__all__ = [  # noqa: RUF022 - functions first
    "GlocalError",
    "Recognizer",
    "compare",
    "evaluate",
    "load_model",
    "open_dataset",
    "backbones",
    "data",
    "methods",
    "metrics",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _PACKAGES:
        return import_module(f"glocal.research.{name}")
    if name in _HOMES:
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value
    raise AttributeError(f"module 'glocal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
