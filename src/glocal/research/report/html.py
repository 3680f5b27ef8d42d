"""A result table as HTML, for a page and for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from glocal.common.markup import Html, text
from glocal.research.metrics import METRICS
from glocal.research.report.table import EMPTY, Cell, Table, marked


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
