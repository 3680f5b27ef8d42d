"""A result table as a value, and how it looks in a terminal, Markdown, LaTeX, CSV and JSON; ``html`` has it for a page.

The formats for people share one grid of short texts, each with its own escaping.  The formats for programs (CSV, JSON)
have the plain fractions with every digit.

>>> rows = [Row("GEL", {"auroc": Interval(0.737, 0.0072, 600)})]
>>> print(to_markdown(Table("miniImageNet, 1-shot", ["auroc"], rows)).splitlines()[4])
| GEL    | 73.70 ± 0.72 |
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from glocal.common.markup import Html, text
from glocal.research.metrics import METRICS, Interval, PairedDifference, Spread

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
    spread: Mapping[str, Spread] = field(default_factory=dict)  # of the values over trainings from several seeds
    difference_spread: Mapping[str, Spread] = field(default_factory=dict)  # of the differences


@dataclass(frozen=True)
class Table:
    title: str
    metrics: Sequence[str]  # keys of METRICS, in the order of the columns
    rows: Sequence[Row]
    reference: str | None = None  # name of the row that differences are taken against
    sign_test: bool = False  # a column of p-values beside each column of differences
    caption: str = ""

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
        seeds = {each.n for row in self.rows for each in row.spread.values()}
        if seeds:
            line += (
                f" All of it is the mean of {max(seeds)} trainings; seeds: standard deviation over them, in brackets "
                "the 95 % interval of Δ by Student's distribution. A difference is significant when both of its "
                "intervals leave out 0."
            )
        if any(row.rank for row in self.rows):
            line += " Rank: mean place among the rows of this table, 1 is best."
        return line

    @property
    def below(self) -> str:
        return f"{self.caption} {self.reading}".strip()

    def head(self) -> list[Cell]:
        return [title for title, _ in _columns(self)]

    def body(self) -> list[list[Cell]]:
        return [[cell(row) for _, cell in _columns(self)] for row in self.rows]

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
    yield Cell(f"{title} {arrow}"), lambda row: Cell(_value(row.values.get(metric)), bold=row.name in best)
    if any(metric in row.spread for row in table.rows):
        yield (
            Cell("seeds", kind="delta"),
            lambda row: Cell(number(row.spread[metric].std) if metric in row.spread else EMPTY, kind="delta"),
        )
    if metric in table.compared:
        yield Cell(f"Δ {title}", kind="delta"), lambda row: Cell(_difference(row, metric), kind="delta")
        if any(metric in row.difference_spread for row in table.rows):
            yield (
                Cell("seeds", kind="delta"),
                lambda row: Cell(_bounds(row.difference_spread.get(metric)), kind="delta"),
            )
        if table.sign_test:
            yield Cell("p", kind="p"), lambda row: Cell(_p_value(row, metric), kind="p")
    if any(metric in row.rank for row in table.rows):
        yield Cell("Rank"), lambda row: Cell(f"{row.rank[metric]:.2f}" if metric in row.rank else EMPTY)
    if any(metric in row.published for row in table.rows):
        yield Cell("Published"), lambda row: Cell(_value(row.published.get(metric)))


def number(value: float, sign: str = "") -> str:
    """A share in hundredths."""
    return f"{100 * value:{sign}.2f}".replace("-", "−")


points = partial(number, sign="+")  # of a difference


def p_text(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _any(table: Table, field: str) -> bool:
    return any(getattr(row, field) for row in table.rows)


def _value(value: Interval | None) -> str:
    """A published number that came without an interval (one value, or half is NaN) is printed without one."""
    if value is None or not math.isfinite(value.mean):
        return EMPTY
    mean = number(value.mean)
    return f"{mean} ± {number(value.half)}" if value.n > 1 and math.isfinite(value.half) else mean


def _difference(row: Row, metric: str) -> str:
    if metric not in row.difference:
        return EMPTY
    gap = row.difference[metric]
    mean, low, high = (points(x) for x in (gap.mean, gap.low, gap.high))
    return f"{mean} [{low}, {high}]"


def _bounds(value: Spread | None) -> str:
    if value is None:
        return EMPTY
    low, high = (points(x) for x in (value.low, value.high))
    return f"[{low}, {high}]"


def _p_value(row: Row, metric: str) -> str:
    return p_text(row.difference[metric].p_value) if metric in row.difference else EMPTY


if TYPE_CHECKING:
    from rich.table import Table as RichTable


def to_rich(table: Table) -> RichTable:
    """For a terminal.  Names are Text, so that square brackets in them are not read as markup."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=Text(table.title), caption=Text(table.below), box=SIMPLE_HEAD, title_justify="left")
    drawn.caption_justify = "left"
    for cell in table.head():
        drawn.add_column(Text(cell.text), justify="left" if cell.left else "right", overflow="fold")
    for line in table.body():
        drawn.add_row(*(Text(cell.text, style="bold" if cell.bold else "") for cell in line))
    return drawn


def to_markdown(table: Table) -> str:
    texts = [[marked(cell, _in_markdown, "**{}**") for cell in line] for line in [table.head(), *table.body()]]
    width = [max(map(len, column)) for column in zip(*texts, strict=True)]
    left = [cell.left for cell in table.head()]
    rule = ["-" * n if to_left else "-" * (n - 1) + ":" for n, to_left in zip(width, left, strict=True)]
    lines = [
        "| " + " | ".join(f"{part:{'<' if l else '>'}{n}}" for part, n, l in zip(line, width, left, strict=True)) + " |"
        for line in [texts[0], rule, *texts[1:]]
    ]
    return "\n".join([f"**{_in_markdown(table.title)}**", "", *lines, "", _in_markdown(table.below), ""])


def to_latex(table: Table) -> str:
    r"""A ``table`` float for \usepackage{booktabs}."""
    head, *body = [
        [marked(cell, _in_latex, r"\textbf{{{}}}") for cell in line] for line in [table.head(), *table.body()]
    ]
    align = "".join("l" if cell.left else "r" for cell in table.head())
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_in_latex(f'{table.title}. {table.below}')}}}",
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


def to_csv(tables: Sequence[tuple[Table, Mapping[str, Any]]]) -> str:
    """One line per row, all tables under the columns that any of them has; in front what tells the tables apart.

    Plain fractions with every digit, an empty field where nothing was measured.
    """
    lines = [{**front, **line} for table, front in tables for line in _csv_lines(table)]
    columns = [name for name in dict.fromkeys(key for line in lines for key in line) if name != "note"]
    file = io.StringIO()
    writer = csv.DictWriter(file, [*columns, "note"], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return file.getvalue()


class Numbers(NamedTuple):
    """A mapping of ``Row`` by metric, for programs."""

    key: str  # in JSON
    columns: Mapping[str, str]  # in CSV: ending of the column -> attribute


NUMBERS = {
    "values": Numbers("values", {"": "mean", "_half": "half", "_tasks": "n"}),
    "difference": Numbers(
        "difference", {"_diff": "mean", "_diff_low": "low", "_diff_high": "high", "_diff_p": "p_value"}
    ),
    "rank": Numbers("rank", {"_rank": "itself"}),
    "published": Numbers("published", {"_published": "mean", "_published_half": "half"}),
    "spread": Numbers("seeds", {"_seeds_std": "std"}),
    "difference_spread": Numbers("difference_seeds", {"_diff_seeds_low": "low", "_diff_seeds_high": "high"}),
}


def _csv_lines(table: Table) -> Iterator[dict[str, Any]]:
    columns = [
        (f"{metric}{suffix}", metric, attribute, kind)
        for metric in table.metrics
        for kind, numbers in NUMBERS.items()
        for suffix, attribute in numbers.columns.items()
        if kind == "values" or any(metric in getattr(row, kind) for row in table.rows)
    ]
    scored = any(row.open_score for row in table.rows)
    for row in table.rows:
        line: dict[str, Any] = {"name": row.name} | ({"open_score": row.open_score} if scored else {})
        for title, metric, attribute, kind in columns:
            cell = getattr(row, kind).get(metric, math.nan)
            number = cell if kind == "rank" else getattr(cell, attribute, math.nan)
            line[title] = number if math.isfinite(number) else ""
        yield line | {"note": row.note}


def to_json(table: Table) -> dict[str, Any]:
    """Plain values for ``json.dumps``; JSON has no NaN, so an interval nobody published is None."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return value
        return {name: x if math.isfinite(x) else None for name, x in asdict(value).items()}

    def line(row: Row) -> dict[str, Any]:
        parts: dict[str, Any] = {"open_score": row.open_score}
        for kind, numbers in NUMBERS.items():
            cells = getattr(row, kind)
            parts[numbers.key] = {metric: plain(cells[metric]) for metric in table.metrics if metric in cells}
        given = {key: part for key, part in parts.items() if part or key in ("values", "difference")}
        return {"name": row.name, "note": row.note, **given}

    return {
        "title": table.title,
        "caption": table.caption,
        "reference": table.reference,
        "metrics": list(table.metrics),
        "rows": [line(row) for row in table.rows],
    }


def marked(cell: Cell, escape: Callable[[str], str], bold: str) -> str:
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


def to_html(table: Table) -> Html:
    """The table in a box that scrolls by itself, and beneath it what each column means.

    Notes stand under the names and differences under the values: a page is narrower than a terminal.
    """
    head = "".join(f'<th scope="col">{text(cell.text)}</th>' for cell in table.head() if not cell.kind)
    body = "".join(f"<tr>{_html_row(line)}</tr>\n" for line in table.body())
    meaning = "".join(
        f"<div><dt>{text(METRICS[metric].title)}</dt><dd>{text(METRICS[metric].description)}</dd></div>"
        for metric in table.metrics
    )
    return Html(
        f'<figure class="table"><h3>{text(table.title)}</h3>\n'
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text(table.title)}">'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
        f'<figcaption>{text(table.below)}<dl class="legend">{meaning}</dl></figcaption></figure>'
    )


def _html_row(line: Sequence[Cell]) -> str:
    name, *rest = line
    note = "".join(f'<span class="note">{text(cell.text)}</span>' for cell in rest if cell.kind == "note" and cell.text)
    row = f'<th scope="row">{text(name.text)}{note}</th>'
    for i, cell in enumerate(rest):
        if not cell.kind:
            after = {c.kind: text(c.text) for c in takewhile(lambda c: c.kind, rest[i + 1 :]) if c.text != EMPTY}
            delta = ""
            if "delta" in after:
                p = f" p {after['p']}" if "p" in after else ""
                delta = f'<span class="delta">Δ {after["delta"].replace(" [", "<br>[")}{p}</span>'
            row += f"<td>{marked(cell, text, '<strong>{}</strong>')}{delta}</td>"
    return row
