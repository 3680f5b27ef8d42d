"""A table that was made before and is made again: what moved, by how much, and what was otherwise meanwhile.

Rounding alone parts two trainings of the same recipe: sums are taken in another order with another number of threads.
So a repeated number is held against the spread over training seeds that both reports state.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal.common.errors import DataError, GlocalError
from glocal.research.engine.recipe import Recipe
from glocal.research.reproduce.machine import differences, way_back
from glocal.research.reproduce.report_folder import NUMBERS

METRIC = "auroc"  # the one that findings are about
UNSET = "not set"
NAMED = 6  # settings at most


@dataclass(frozen=True)
class Change:
    """Of a row that is in both reports."""

    table: str
    row: str
    before: float
    now: float
    half: float | None  # of the interval of their difference over seeds; None where one of them is from one seed
    runs: tuple[str | None, str | None]  # then and now; a name stands for recipe, pictures and what it started from
    same_tasks: bool

    @property
    def size(self) -> float:
        return abs(self.now - self.before)

    @property
    def beyond(self) -> bool:
        return self.half is not None and self.size > self.half


def read_report(path: Path) -> dict[str, Any]:
    """Numbers of a report, by its folder or file."""
    file = path / NUMBERS if path.is_dir() else path
    try:
        found: dict[str, Any] = json.loads(file.read_text("utf-8"))
        if "pieces" not in found:
            raise ValueError("it has no pieces")
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"{path} is not the report of a reproduction ({error}); name a folder that has {NUMBERS}, as "
            "docs/results/reproduce-embedded",
            code="no-report",
        ) from error
    return found


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """Rows of tables that both have, in the order of the present one."""
    earlier = {(title, row["name"]): (row, run, tasks) for title, row, run, tasks in _rows(before)}
    found = []
    for title, row, run, tasks in _rows(now):
        if (title, row["name"]) not in earlier:
            continue
        old, old_run, old_tasks = earlier[title, row["name"]]
        then, today = _half(old), _half(row)
        half = None if then is None or today is None else math.hypot(then, today)  # both means have a spread
        was, is_now = (each["values"][METRIC]["mean"] for each in (old, row))
        found.append(Change(title, row["name"], was, is_now, half, (old_run, run), tasks == old_tasks))
    return found


def _half(row: Mapping[str, Any]) -> float | None:
    """Of the interval of its mean over seeds."""
    over = row.get("seeds", {}).get(METRIC)
    return None if over is None else (over["high"] - over["low"]) / 2


def _rows(report: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], str | None, str]]:
    """Title of the table, row, name of its run, fingerprint of its tasks."""
    for piece in report["pieces"]:
        for table in piece.get("tables", ()):
            runs = piece.get("runs", {}).get(f"{table['spec']['shot']}-shot", {})
            for row in table["rows"]:
                if METRIC in row["values"]:
                    yield table["title"], row, runs.get(row["name"]), table["tasks_fingerprint"]


def repeated(before: Mapping[str, Any], now: Mapping[str, Any], name: str = "") -> list[str]:
    """A sentence or two about an earlier report, called ``name``, beside this one.

    Without a name it is the one that is replaced, of which nothing is said when all is as it was.
    """
    found, asked = changes(before, now), bool(name)
    name = name or "the report that this one replaces"
    if not found:
        return [f"Beside {name}: no row is in both."] if asked else []
    largest, otherwise = max(found, key=lambda each: each.size), _otherwise(found, before, now)
    if not asked and not largest.size and not otherwise:
        return []
    if largest.size == 0:
        said = f"all {len(found)} rows that are in both are equal to the last digit"
    else:
        said = (
            f"AUROC of {len(found)} rows that are in both moves by up to {100 * largest.size:.2f} points "
            f"({largest.row}, {largest.table}: {100 * largest.before:.2f} to {100 * largest.now:.2f})"
        )
        known = [each for each in found if each.half is not None]
        if known:
            beyond = [f"{each.row}, {each.table}" for each in known if each.beyond]
            said += "; within what the intervals over seeds of both allow" + (
                f" but for {len(beyond)}: {'; '.join(beyond)}" if beyond else ""
            )
        else:
            said += "; one of the two was made from one seed and states no spread"
    made = f"It was made with {', '.join(otherwise)}." if otherwise else "Nothing that is recorded was otherwise."
    return [f"Beside {name}, {said}. {made} {way_back(before.get('machine', {}), now['machine'])}".rstrip()]


def _otherwise(found: list[Change], before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What could have moved them."""
    reasons = differences(before.get("machine", {}), now["machine"])
    if "machine" not in before:
        reasons.append("a machine that it does not record")
    if others := [each.runs for each in found if len(set(each.runs)) > 1]:
        said = f"other recipes, pictures or starts in {len(others)} of {len(found)} rows"
        pairs = [(_settings(before, then), _settings(now, today)) for then, today in others]
        reasons.append(said + _named(pairs if all(map(all, pairs)) else []))
    if unlike := sum(not each.same_tasks for each in found):
        reasons.append(f"other test tasks in {unlike}")
    if (seeds := before.get("training_seeds", 1)) != now["training_seeds"]:
        reasons.append(f"training seeds {seeds} instead of {now['training_seeds']}")
    return reasons


def _settings(report: Mapping[str, Any], run: str | None) -> dict[str, Any]:
    """Of a run that a report tells about, by dotted keys; the name of its start says nothing to a reader."""
    about = report.get("runs", {}).get(run)
    if about is None:
        return {}
    recipe = about["recipe"]
    with suppress(ValueError, GlocalError):  # of a plugin that is not here, or of another version
        recipe = Recipe.model_validate(recipe).model_dump(mode="json")  # a key that is new since has its default
    return {"pictures": about["data"]["manifest"][:12]} | _flat(recipe | {"init": None})


def _flat(part: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in part.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{key}.")
        else:  # 64 and 64.0 are one setting
            flat[above + key] = int(value) if isinstance(value, float) and value.is_integer() else value
    return flat


def _named(pairs: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """In what the settings of those runs differ, in brackets."""
    keys = {
        f"{key} {then.get(key, UNSET)} instead of {now.get(key, UNSET)}": None
        for then, now in pairs
        for key in sorted(then.keys() | now.keys())
        if then.get(key, UNSET) != now.get(key, UNSET)
    }
    more = f"; {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return f" ({'; '.join(list(keys)[:NAMED])}{more})" if keys else ""
