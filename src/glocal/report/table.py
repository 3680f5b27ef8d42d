"""How a result table looks in a terminal, Markdown, LaTeX, CSV, JSON and HTML.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from glocal.metrics import METRICS, Interval, PairedDifference
from glocal.report import grid
from glocal.report.grid import EMPTY, Cell, Row, Table
from glocal.report.html import Html, text

if TYPE_CHECKING:
    from rich.table import Table as RichTable

__all__ = ["Interval", "Row", "Table", "to_csv", "to_html", "to_json", "to_latex", "to_markdown", "to_rich"]


def to_rich(table: Table) -> RichTable:
    """For a terminal.  Names are Text, so that square brackets in them are not read as markup."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=Text(table.title), caption=Text(grid.below(table)), box=SIMPLE_HEAD, title_justify="left")
    drawn.caption_justify = "left"
    for cell in grid.head(table):
        drawn.add_column(Text(cell.text), justify="left" if cell.left else "right", overflow="fold")
    for line in grid.body(table):
        drawn.add_row(*(Text(cell.text, style="bold" if cell.bold else "") for cell in line))
    return drawn


def to_markdown(table: Table) -> str:
    texts = [[_marked(cell, _in_markdown, "**{}**") for cell in line] for line in [grid.head(table), *grid.body(table)]]
    width = [max(map(len, column)) for column in zip(*texts, strict=True)]
    left = [cell.left for cell in grid.head(table)]
    rule = ["-" * n if to_left else "-" * (n - 1) + ":" for n, to_left in zip(width, left, strict=True)]
    lines = [
        "| " + " | ".join(f"{part:{'<' if l else '>'}{n}}" for part, n, l in zip(line, width, left, strict=True)) + " |"
        for line in [texts[0], rule, *texts[1:]]
    ]
    return "\n".join([f"**{_in_markdown(table.title)}**", "", *lines, "", _in_markdown(grid.below(table)), ""])


def to_latex(table: Table) -> str:
    r"""A ``table`` float for \usepackage{booktabs}."""
    head, *body = [
        [_marked(cell, _in_latex, r"\textbf{{{}}}") for cell in line] for line in [grid.head(table), *grid.body(table)]
    ]
    align = "".join("l" if cell.left else "r" for cell in grid.head(table))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_in_latex(f'{table.title}. {grid.below(table)}')}}}",
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


def _csv_lines(table: Table) -> Iterator[dict[str, Any]]:
    parts = {"": "mean", "_half": "half", "_tasks": "n"}
    gaps = {"_diff": "mean", "_diff_low": "low", "_diff_high": "high", "_diff_p": "p_value"}
    theirs = {"_published": "mean", "_published_half": "half"}
    columns = [
        (f"{metric}{suffix}", metric, attribute, kind)
        for metric in table.metrics
        for kind, names in (("values", parts), ("difference", gaps), ("rank", {"_rank": ""}), ("published", theirs))
        for suffix, attribute in names.items()
        if kind == "values" or any(metric in getattr(row, kind) for row in table.rows)
    ]
    scored = any(row.open_score for row in table.rows)
    for row in table.rows:
        line: dict[str, Any] = {"name": row.name} | ({"open_score": row.open_score} if scored else {})
        for title, metric, attribute, kind in columns:
            found = getattr(row, kind).get(metric, math.nan)
            number = found if kind == "rank" else getattr(found, attribute, math.nan)
            line[title] = number if math.isfinite(number) else ""
        yield line | {"note": row.note}


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
            | ({"open_score": row.open_score} if row.open_score else {})
            | ({"rank": dict(row.rank)} if row.rank else {})
            | ({"published": {m: plain(value) for m, value in row.published.items()}} if row.published else {})
            for row in table.rows
        ],
    }


def to_html(table: Table) -> Html:
    """The table in a box that scrolls by itself, and beneath it what each column means.

    Notes stand under the names and differences under the values: a page is narrower than a terminal.
    """
    head = "".join(f'<th scope="col">{text(cell.text)}</th>' for cell in grid.head(table) if not cell.kind)
    body = "".join(f"<tr>{_html_row(line)}</tr>\n" for line in grid.body(table))
    meaning = "".join(
        f"<div><dt>{text(METRICS[metric].title)}</dt><dd>{text(METRICS[metric].description)}</dd></div>"
        for metric in table.metrics
    )
    return Html(
        f'<figure class="table"><h3>{text(table.title)}</h3>\n'
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text(table.title)}">'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
        f'<figcaption>{text(grid.below(table))}<dl class="legend">{meaning}</dl></figcaption></figure>'
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
            row += f"<td>{_marked(cell, text, '<strong>{}</strong>')}{delta}</td>"
    return row


def _marked(cell: Cell, escape: Callable[[str], str], bold: str) -> str:
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
