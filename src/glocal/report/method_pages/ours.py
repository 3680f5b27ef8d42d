"""Our own numbers: rows of the ``compare.json`` files that ``glocal compare --out`` wrote, by method."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ours:
    file: Path
    data: str  # cifar-fs/test
    task: str  # 5-way 1-shot, 50 % unknown, 600 tasks
    caption: str  # of the table, with the reasons against a comparison with the paper
    transductive: bool  # the table, in which the reference of the other kind may be a guest
    method: str
    name: str  # of the row
    open_score: str
    note: str
    values: Mapping[str, Mapping[str, float | None]]  # by metric: mean, half, as fractions


def read_results(folder: Path) -> list[Ours]:
    """Every row of every comparison in ``folder``; other files there are left alone."""
    found: list[Ours] = []
    for file in sorted(folder.glob("*.json")):
        record = json.loads(file.read_text("utf-8"))
        if isinstance(record, dict) and {"models", "tables"} <= record.keys():
            found += _rows(file, record)
    return found


def _rows(file: Path, record: Mapping[str, Any]) -> Iterator[Ours]:
    method_of = {model["name"]: model["method"] for model in record["models"]}
    data = f"{Path(record['dataset']).name.removesuffix('.zip')}/{record['split']}"
    for table in record["tables"]:
        for row in table["rows"]:
            yield Ours(
                file=file,
                data=data,
                task=_task(table),
                caption=table["caption"],
                transductive=table["transductive"],
                method=method_of[row["name"]],
                name=row["name"],
                open_score=row["open_score"],
                note=row["note"],
                values=row["values"],
            )


def _task(table: Mapping[str, Any]) -> str:
    spec, views = table["spec"], table["support_views"]
    task = (
        f"{spec['way']}-way {spec['shot']}-shot, {100 * table['unknown_share']:.0f} % unknown, {table['tasks']} tasks"
    )
    return task + (f", {views} support views" if views > 1 else "")
