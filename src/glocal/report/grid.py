"""A result table as a value, and as a grid of short texts: what every format that people read has in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from glocal.metrics import METRICS, Interval, PairedDifference
from glocal_runtime.errors import DataError

EMPTY = "–"


@dataclass(frozen=True)
class Row:
    name: str
    values: Mapping[str, Interval]  # by metric, as fractions
    note: str = ""
    difference: Mapping[str, PairedDifference] = field(default_factory=dict)  # this row minus the reference row
    open_score: str = ""  # its name, where rows differ in it
    rank: Mapping[str, float] = field(default_factory=dict)  # mean place among the rows, by metric
    published: Mapping[str, Interval] = field(default_factory=dict)  # what others measured for this row


@dataclass(frozen=True)
class Table:
    title: str
    metrics: Sequence[str]  # keys of METRICS, in the order of the columns
    rows: Sequence[Row]
    reference: str | None = None  # name of the row that differences are taken against
    sign_test: bool = False  # a column of p-values beside each column of differences
    caption: str = ""

    def __post_init__(self) -> None:
        for metric in self.metrics:
            if metric not in METRICS:
                raise DataError(
                    f"a column must be one of {', '.join(METRICS)}, got {metric!r}; add it to METRICS first"
                )
        names = [row.name for row in self.rows]
        if len(set(names)) < len(names):
            raise DataError(f"the rows of a table need different names, got {', '.join(names)}")
        if self.reference is not None and self.reference not in names:
            raise DataError(f"the reference must be one of the rows {', '.join(names)}, got {self.reference!r}")
        if self.reference is None and any(row.difference for row in self.rows):
            raise DataError("rows with paired differences need a reference, got none; name the row they compare with")

    @property
    def compared(self) -> list[str]:
        """Metrics that have a column of paired differences."""
        return [metric for metric in self.metrics if any(metric in row.difference for row in self.rows)]

    @property
    def reading(self) -> str:
        """How to read the numbers, in one line for under the table."""
        measured = [row.values[metric] for row in self.rows for metric in self.metrics if metric in row.values]
        counts = {value.n for value in measured if value.n > 1}
        tasks = f"{max(counts)} tasks" if len(counts) == 1 else "tasks"
        line = f"Mean ± 95 % confidence interval over {tasks}" if counts else "Single values"
        line += ", in percent" + ("; best value bold." if len(self.rows) > 1 else ".")
        if self.compared:
            line += f" Δ: difference to {self.reference} on the same tasks [95 % bootstrap interval]"
            line += (
                "; p: exact sign test over the tasks, not corrected for the number of rows." if self.sign_test else "."
            )
        if any(row.rank for row in self.rows):
            line += " Rank: mean place among the rows of this table, 1 is best."
        return line

    def number(self, value: float, *, signed: bool = False) -> str:
        return f"{100 * value:{'+' if signed else ''}.2f}".replace("-", "−")

    def best(self, metric: str) -> set[str]:
        """Names of the rows whose printed mean is best; nobody when there is nothing to choose from."""
        means = {row.name: row.values[metric].mean for row in self.rows if metric in row.values}
        printed = {name: round(100 * mean, 2) for name, mean in means.items() if math.isfinite(mean)}
        if len(set(printed.values())) < 2:
            return set()
        pick = max if METRICS[metric].higher_is_better else min
        return {name for name, value in printed.items() if value == pick(printed.values())}


@dataclass(frozen=True)
class Cell:
    text: str
    bold: bool = False
    left: bool = False  # words; numbers are set to the right
    kind: str = ""  # "delta" and "p" follow the value they belong to, "note" is the last of its row


def head(table: Table) -> list[Cell]:
    return [title for title, _ in _columns(table)]


def body(table: Table) -> list[list[Cell]]:
    return [[cell(row) for _, cell in _columns(table)] for row in table.rows]


def _columns(table: Table) -> Iterator[tuple[Cell, Callable[[Row], Cell]]]:
    """The head of a column, and its cell in a row."""
    yield Cell("Method", left=True), lambda row: Cell(row.name, left=True)
    if _any(table, "open_score"):
        yield Cell("Open score", left=True), lambda row: Cell(row.open_score or EMPTY, left=True)
    for metric in table.metrics:
        yield from _metric_columns(table, metric)
    if _any(table, "note"):
        yield Cell("Note", left=True, kind="note"), lambda row: Cell(row.note, left=True, kind="note")


def _metric_columns(table: Table, metric: str) -> Iterator[tuple[Cell, Callable[[Row], Cell]]]:
    """The value, then what stands beside it: difference, p-value, rank and published number where there are any."""
    title, best = METRICS[metric].title, table.best(metric)
    arrow = "↑" if METRICS[metric].higher_is_better else "↓"
    yield Cell(f"{title} {arrow}"), lambda row: Cell(_value(table, row.values.get(metric)), bold=row.name in best)
    if metric in table.compared:
        yield Cell(f"Δ {title}", kind="delta"), lambda row: Cell(_difference(table, row, metric), kind="delta")
        if table.sign_test:
            yield Cell("p", kind="p"), lambda row: Cell(_p_value(row, metric), kind="p")
    if any(metric in row.rank for row in table.rows):
        yield Cell("Rank"), lambda row: Cell(f"{row.rank[metric]:.2f}" if metric in row.rank else EMPTY)
    if any(metric in row.published for row in table.rows):
        yield Cell("Published"), lambda row: Cell(_value(table, row.published.get(metric)))


def below(table: Table) -> str:
    return f"{table.caption} {table.reading}".strip()


def p_text(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _any(table: Table, field: str) -> bool:
    return any(getattr(row, field) for row in table.rows)


def _value(table: Table, value: Interval | None) -> str:
    """A published number that came without an interval (one value, or half is NaN) is printed without one."""
    if value is None or not math.isfinite(value.mean):
        return EMPTY
    mean = table.number(value.mean)
    return f"{mean} ± {table.number(value.half)}" if value.n > 1 and math.isfinite(value.half) else mean


def _difference(table: Table, row: Row, metric: str) -> str:
    if metric not in row.difference:
        return EMPTY
    found = row.difference[metric]
    mean, low, high = (table.number(x, signed=True) for x in (found.mean, found.low, found.high))
    return f"{mean} [{low}, {high}]"


def _p_value(row: Row, metric: str) -> str:
    return p_text(row.difference[metric].p_value) if metric in row.difference else EMPTY
