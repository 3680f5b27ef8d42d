"""glocal: few-shot open-set recognition.

Teach it classes from a handful of pictures; it names what it knows and says "unknown" to what it does not.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from glocal import backbones, data, methods, metrics
    from glocal.data.registry import open_dataset
    from glocal.engine.checkpoint import load_model
    from glocal.engine.evaluate import evaluate
    from glocal.report.comparison import compare
    from glocal_runtime import Recognizer
    from glocal_runtime.errors import GlocalError

# Imported when first used, because torch takes seconds.
_HOMES = {
    "GlocalError": "glocal_runtime.errors",
    "Recognizer": "glocal_runtime",
    "compare": "glocal.report.comparison",
    "evaluate": "glocal.engine.evaluate",
    "load_model": "glocal.engine.checkpoint",
    "open_dataset": "glocal.data.registry",
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
        return import_module(f"glocal.{name}")
    if name in _HOMES:
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found
    raise AttributeError(f"module 'glocal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
