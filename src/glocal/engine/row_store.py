"""Rows that were measured once and are read the next time: one JSON file per model and task list.

A file is named by what its numbers depend on: weights, settings and code of the model, open score, tasks, support
views and metrics.  So an edited formula is computed again.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glocal import __version__
from glocal.backbones import Backbone
from glocal.engine.named_models import NamedModel
from glocal.methods import Method
from glocal.metrics import METRICS
from glocal_runtime.files import write_text

FORMAT = "glocal-rows-1"
FORMULAS = ("ops", "metrics", "methods", "backbones", "types")  # parts of glocal that compute numbers
Rows = dict[str, npt.NDArray[np.float64]]  # metric -> (T,)


class RowStore:
    """``folder=None`` keeps nothing."""

    def __init__(self, folder: Path | None):
        self._folder = folder

    def read(self, model: NamedModel, tasks: str, support_views: int) -> Rows | None:
        """The rows, or None when they are not there; a file that is not whole counts as not there."""
        if self._folder is None:
            return None
        record, file = self._record(self._folder, model, tasks, support_views)
        try:
            found = json.loads(file.read_text("utf-8"))
            rows = {str(name): np.asarray(values, np.float64) for name, values in found.pop("rows").items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return rows if found == record else None

    def write(self, model: NamedModel, tasks: str, support_views: int, rows: Rows) -> None:
        if self._folder is not None:
            record, file = self._record(self._folder, model, tasks, support_views)
            write_text(file, json.dumps(record | {"rows": {name: values.tolist() for name, values in rows.items()}}))

    @staticmethod
    def _record(folder: Path, model: NamedModel, tasks: str, support_views: int) -> tuple[dict[str, Any], Path]:
        record = {
            "format": FORMAT,
            "version": __version__,
            "method": model.method,
            "model": model.identity,
            "code": code_hash(model),
            "open_score": model.score,
            "tasks": tasks,
            "support_views": support_views,
            "metrics": sorted(METRICS),
        }
        key = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
        return record, folder / f"{key[:32]}.json"


def code_hash(model: NamedModel) -> str:
    """Of the source files that compute the answers: those of method, backbone and metrics, and what they import."""
    parts = [part for whole in (model.model.method, model.model.backbone) for part in whole.modules()]
    metrics = ["glocal.metrics", *(metric.compute.__module__ for metric in METRICS.values())]
    # Packages of a plugin count like our own; torch and timm do not.
    ours = [type(part).__module__ for part in parts if isinstance(part, Method | Backbone)]
    packages = {name.partition(".")[0] for name in (*ours, *metrics)} | {"glocal", "glocal_runtime"}
    waiting = sorted({*metrics, *(kind.__module__ for part in parts for kind in type(part).__mro__)})
    sources: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        top, _, rest = name.partition(".")
        if name in sources or top not in packages or (top == "glocal" and rest.partition(".")[0] not in FORMULAS):
            continue
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and Path(file).is_file():
            stat = Path(file).stat()
            sources[name], imported = _source(name, Path(file), stat.st_mtime_ns, stat.st_size)
            waiting += imported
    return hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=1000)
def _source(module: str, file: Path, mtime_ns: int, size: int) -> tuple[str, tuple[str, ...]]:
    """The hash of a source file, and the names of the modules it imports and of what may be a module."""
    source, names = file.read_bytes(), []
    parents = module.split(".") if file.stem == "__init__" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return hashlib.sha256(source).hexdigest(), tuple(names)
