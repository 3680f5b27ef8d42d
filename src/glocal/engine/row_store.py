"""Rows that were measured once and are read the next time: one JSON file per contestant and task list."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from glocal import __version__
from glocal.engine.contestants import Contestant
from glocal.engine.evaluate import Rows
from glocal.metrics import METRICS
from glocal_runtime.files import write_text

FORMAT = "glocal-rows-1"


class RowStore:
    """``folder=None`` remembers nothing.

    A file is named by what its numbers depend on: weights and settings of the model, open score, tasks, support views,
    the metrics there are and the version of this program.
    """

    def __init__(self, folder: Path | None):
        self._folder = folder

    def read(self, about: Contestant, tasks: str, support_views: int) -> Rows | None:
        """The rows, or None when they are not there; a file that is not whole counts as not there."""
        if self._folder is None:
            return None
        record, key = self._record(about, tasks, support_views)
        try:
            found = json.loads(self._file(key).read_text("utf-8"))
            rows = {str(name): np.asarray(values, np.float64) for name, values in found.pop("rows").items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return rows if found == record else None

    def write(self, about: Contestant, tasks: str, support_views: int, rows: Rows) -> None:
        if self._folder is None:
            return
        record, key = self._record(about, tasks, support_views)
        plain = {name: values.tolist() for name, values in rows.items()}
        write_text(self._file(key), json.dumps(record | {"rows": plain}))

    def _file(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{key[:32]}.json"

    def _record(self, about: Contestant, tasks: str, support_views: int) -> tuple[dict[str, Any], str]:
        record = {
            "format": FORMAT,
            "version": __version__,
            "method": about.method,
            "model": about.identity,
            "open_score": about.score,
            "tasks": tasks,
            "support_views": support_views,
            "metrics": sorted(METRICS),
        }
        return record, hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
