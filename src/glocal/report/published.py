"""The numbers that the GEL paper prints, all of them, as data.

Each row has the table it stands in, dataset, method (a name of METHODS, for variants ``gel/<variant>``), shot,
backbone, and the metrics as fractions with their interval.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from glocal.metrics import METRICS, Interval

TASKS = 600  # over which the paper takes its means


@dataclass(frozen=True)
class Published:
    table: str  # table-1, ablation, combine, coefficients, resnet-18
    dataset: str
    method: str
    shot: int
    backbone: str
    values: dict[str, Interval]
    note: str = ""


@cache
def published() -> tuple[Published, ...]:
    """Every row of the paper's tables, in the paper's order."""
    record = json.loads((resources.files("glocal.report") / "published.json").read_text("utf-8"))
    return tuple(_row(fields) for fields in record["rows"])


def _row(fields: dict[str, Any]) -> Published:
    values = {name: Interval(fields[name][0] / 100, fields[name][1] / 100, TASKS) for name in METRICS if name in fields}
    about = {key: value for key, value in fields.items() if key not in METRICS}
    return Published(values=values, **about)
