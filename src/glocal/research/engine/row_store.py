"""Rows that were measured once and are read the next time: one JSON file per model and task list.

A file is named by what its numbers depend on: weights, settings and code of the model, open score, tasks, support
views and metrics.  So an edited formula is computed again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glocal import __version__
from glocal.common.files import write_text
from glocal.research.engine.named_models import NamedModel
from glocal.research.methods import Method
from glocal.research.metrics import METRICS, block_metrics
from glocal.research.source_hash import source_hash

FORMAT = "glocal-rows-1"
Rows = dict[str, npt.NDArray[np.float64]]  # metric -> (T,)


@dataclass(frozen=True)
class RowStore:
    folder: Path

    def read(self, model: NamedModel, tasks: str, support_views: int) -> Rows | None:
        """The rows, or None when they are not there; a file that is not whole counts as not there."""
        record, file = self._record(model, tasks, support_views)
        try:
            stored = json.loads(file.read_text("utf-8"))
            rows = {str(name): np.asarray(values, np.float64) for name, values in stored.pop("rows").items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return rows if stored == record else None

    def write(self, model: NamedModel, tasks: str, support_views: int, rows: Rows) -> None:
        record, file = self._record(model, tasks, support_views)
        write_text(file, json.dumps(record | {"rows": {name: values.tolist() for name, values in rows.items()}}))

    def _record(self, model: NamedModel, tasks: str, support_views: int) -> tuple[dict[str, Any], Path]:
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
        return record, self.folder / f"{key[:32]}.json"


def code_hash(model: NamedModel) -> str:
    """Of the source files that compute the answers: those of method, backbone and metrics, and what they import."""
    parts = [part for part in model.model.method.modules() if isinstance(part, Method)]  # a wrapper and what it wraps
    return source_hash([*parts, model.model.backbone, block_metrics, *(metric.compute for metric in METRICS.values())])
