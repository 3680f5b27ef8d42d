"""A result table as a value, and how it looks in a terminal, Markdown, LaTeX, CSV, JSON and HTML.

The formats people read share one grid of short texts, each with its own escaping; the formats programs read (CSV,
JSON) carry the plain fractions with every digit.

>>> rows = [Row("GEL", {"auroc": Interval(0.737, 0.0072, 600)})]
>>> print(to_markdown(Table("miniImageNet, 1-shot", ["auroc"], rows)).splitlines()[4])
| GEL    | 73.70 ± 0.72 |
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from glocal.errors import DataError
from glocal.metrics import METRICS, Interval, PairedDifference
from glocal.report.html import Html, text

if TYPE_CHECKING:
    from rich.table import Table as RichTable

EMPTY = "–"


@dataclass(frozen=True)
class Row:
    name: str
    values: Mapping[str, Interval]  # by metric, as fractions
    note: str = ""
    difference: Mapping[str, PairedDifference] = field(default_factory=dict)  # this row minus the reference row


@dataclass(frozen=True)
class Table:
    title: str
    metrics: Sequence[str]  # keys of METRICS, in the order of the columns
    rows: Sequence[Row]
    reference: str | None = None  # name of the row that differences are taken against
    caption: str = ""
    percent: bool = True
    digits: int = 2

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
        line += (", in percent" if self.percent else "") + ("; best value bold." if len(self.rows) > 1 else ".")
        if self.compared:
            line += f" Δ: difference to {self.reference} on the same tasks [95 % bootstrap interval]."
        return line

    def number(self, value: float, *, signed: bool = False) -> str:
        shown = f"{value * self._scale:{'+' if signed else ''}.{self.digits}f}"
        return shown.replace("-", "−")

    def best(self, metric: str) -> set[str]:
        """Names of the rows whose printed mean is best; nobody when there is nothing to choose from."""
        means = {row.name: row.values[metric].mean for row in self.rows if metric in row.values}
        printed = {name: round(mean * self._scale, self.digits) for name, mean in means.items() if math.isfinite(mean)}
        if len(set(printed.values())) < 2:
            return set()
        pick = max if METRICS[metric].higher_is_better else min
        return {name for name, value in printed.items() if value == pick(printed.values())}

    @property
    def _scale(self) -> int:
        return 100 if self.percent else 1


@dataclass(frozen=True)
class _Cell:
    text: str
    bold: bool = False
    kind: str = ""  # "delta" follows the value it belongs to, "note" is the last of its row


def _head(table: Table) -> list[_Cell]:
    cells = [_Cell("Method")]
    for metric in table.metrics:
        title = METRICS[metric].title
        cells.append(_Cell(f"{title} {'↑' if METRICS[metric].higher_is_better else '↓'}"))
        if metric in table.compared:
            cells.append(_Cell(f"Δ {title}", kind="delta"))
    return [*cells, _Cell("Note", kind="note")] if _has_notes(table) else cells


def _body(table: Table) -> list[list[_Cell]]:
    best = {metric: table.best(metric) for metric in table.metrics}
    lines = []
    for row in table.rows:
        cells = [_Cell(row.name)]
        for metric in table.metrics:
            cells.append(_Cell(_value(table, row.values.get(metric)), bold=row.name in best[metric]))
            if metric in table.compared:
                cells.append(_Cell(_difference(table, row.difference.get(metric)), kind="delta"))
        lines.append([*cells, _Cell(row.note, kind="note")] if _has_notes(table) else cells)
    return lines


def _has_notes(table: Table) -> bool:
    return any(row.note for row in table.rows)


def _value(table: Table, value: Interval | None) -> str:
    """A published number that came without an interval (one value, or half is NaN) is printed without one."""
    if value is None or not math.isfinite(value.mean):
        return EMPTY
    mean = table.number(value.mean)
    return f"{mean} ± {table.number(value.half)}" if value.n > 1 and math.isfinite(value.half) else mean


def _difference(table: Table, value: PairedDifference | None) -> str:
    if value is None:
        return EMPTY
    mean, low, high = (table.number(x, signed=True) for x in (value.mean, value.low, value.high))
    return f"{mean} [{low}, {high}]"


def to_rich(table: Table) -> RichTable:
    """For a terminal.  Names are Text, so that square brackets in them are not read as markup."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=Text(table.title), caption=Text(_below(table)), box=SIMPLE_HEAD, title_justify="left")
    drawn.caption_justify = "left"
    for i, cell in enumerate(_head(table)):
        drawn.add_column(Text(cell.text), justify="left" if i == 0 or cell.kind == "note" else "right")
    for line in _body(table):
        drawn.add_row(*(Text(cell.text, style="bold" if cell.bold else "") for cell in line))
    return drawn


def to_markdown(table: Table) -> str:
    grid = [[_marked(cell, _in_markdown, "**{}**") for cell in line] for line in [_head(table), *_body(table)]]
    width = [max(map(len, column)) for column in zip(*grid, strict=True)]
    left = [i == 0 or cell.kind == "note" for i, cell in enumerate(_head(table))]
    rule = ["-" * n if to_left else "-" * (n - 1) + ":" for n, to_left in zip(width, left, strict=True)]
    lines = [
        "| " + " | ".join(f"{part:{'<' if l else '>'}{n}}" for part, n, l in zip(line, width, left, strict=True)) + " |"
        for line in [grid[0], rule, *grid[1:]]
    ]
    return "\n".join([f"**{_in_markdown(table.title)}**", "", *lines, "", _in_markdown(_below(table)), ""])


def to_latex(table: Table) -> str:
    r"""A ``table`` float for \usepackage{booktabs}."""
    head, *body = [
        [_marked(cell, _in_latex, r"\textbf{{{}}}") for cell in line] for line in [_head(table), *_body(table)]
    ]
    align = "".join("l" if i == 0 or cell.kind == "note" else "r" for i, cell in enumerate(_head(table)))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_in_latex(f'{table.title}. {_below(table)}')}}}",
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            " & ".join(head) + r" \\",
            r"\midrule",
            # A row that starts with [ or * would be read as an argument of the \\ before it.
            *(("{}" if line[0][:1] in ("[", "*") else "") + " & ".join(line) + r" \\" for line in body),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def to_csv(table: Table) -> str:
    """One line per row; plain fractions with every digit, an empty field where nothing was measured."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    parts = {"": "mean", "_half": "half", "_tasks": "n"}
    gaps = {"_diff": "mean", "_diff_low": "low", "_diff_high": "high", "_diff_p": "p_value"}
    columns = [
        (f"{metric}{suffix}", metric, attribute, kind)
        for metric in table.metrics
        for kind, names in (("values", parts), ("difference", gaps if metric in table.compared else {}))
        for suffix, attribute in names.items()
    ]
    writer.writerow(["name", *(title for title, *_ in columns), "note"])
    for row in table.rows:
        numbers = [
            getattr(getattr(row, kind).get(metric), attribute, math.nan) for _, metric, attribute, kind in columns
        ]
        writer.writerow([row.name, *(x if math.isfinite(x) else "" for x in numbers), row.note])
    return file.getvalue()


def to_json(table: Table) -> dict[str, Any]:
    """Plain values for ``json.dumps``; JSON has no NaN, so an interval nobody published is None."""

    def plain(value: Interval | PairedDifference) -> dict[str, Any]:
        return {name: x if math.isfinite(x) else None for name, x in asdict(value).items()}

    return {
        "title": table.title,
        "caption": table.caption,
        "reference": table.reference,
        "metrics": list(table.metrics),
        "rows": [
            {
                "name": row.name,
                "note": row.note,
                "values": {metric: plain(row.values[metric]) for metric in table.metrics if metric in row.values},
                "difference": {m: plain(row.difference[m]) for m in table.metrics if m in row.difference},
            }
            for row in table.rows
        ],
    }


def to_html(table: Table) -> Html:
    """The table in a box that scrolls by itself, and beneath it what each column means.

    Notes stand under the names and differences under the values: a page is narrower than a terminal.
    """
    head = "".join(f'<th scope="col">{text(cell.text)}</th>' for cell in _head(table) if not cell.kind)
    body = "".join(f"<tr>{_html_row(line)}</tr>\n" for line in _body(table))
    meaning = "".join(
        f"<div><dt>{text(METRICS[metric].title)}</dt><dd>{text(METRICS[metric].description)}</dd></div>"
        for metric in table.metrics
    )
    return Html(
        f'<figure class="table"><h3>{text(table.title)}</h3>\n'
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text(table.title)}">'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
        f'<figcaption>{text(_below(table))}<dl class="legend">{meaning}</dl></figcaption></figure>'
    )


def _html_row(line: Sequence[_Cell]) -> str:
    name, *rest = line
    note = "".join(f'<span class="note">{text(cell.text)}</span>' for cell in rest if cell.kind == "note" and cell.text)
    row = f'<th scope="row">{text(name.text)}{note}</th>'
    for cell, after in zip(rest, [*rest[1:], _Cell("")], strict=True):
        if not cell.kind:
            below = after.kind == "delta" and after.text != EMPTY
            delta = f'<span class="delta">Δ {text(after.text).replace(" [", "<br>[")}</span>' if below else ""
            row += f"<td>{_marked(cell, text, '<strong>{}</strong>')}{delta}</td>"
    return row


def _below(table: Table) -> str:
    return f"{table.caption} {table.reading}".strip()


def _marked(cell: _Cell, escape: Callable[[str], str], bold: str) -> str:
    return bold.format(escape(cell.text)) if cell.bold else escape(cell.text)


def _in_markdown(value: str) -> str:
    one_line = " ".join(value.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|~\[\]])", r"\\\1", one_line)


_LATEX = str.maketrans(
    {character: "\\" + character for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "–": "--"}
    | {"±": r"$\pm$", "−": "$-$", "Δ": r"$\Delta$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"}
)


def _in_latex(value: str) -> str:
    return " ".join(value.split()).translate(_LATEX)
