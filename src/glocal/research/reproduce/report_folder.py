"""The report as a folder: report.html, report.md, report.json, LaTeX tables, figures as PNG and SVG.

A part is one table or figure on one data set, with its section of the page, its files and its numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal import __version__
from glocal.common.files import replacing, write_text
from glocal.common.markup import Html
from glocal.common.page import Section, code, facts, page, side_by_side
from glocal.common.page import figure as on_page
from glocal.research.report.comparison import Result
from glocal.research.report.plots import to_png, to_svg
from glocal.research.report.table import to_html, to_latex, to_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HTML, MARKDOWN, NUMBERS = "report.html", "report.md", "report.json"


@dataclass(frozen=True)
class ReportPart:
    title: str
    html: Sequence[str]  # the body of its section
    markdown: str
    files: Mapping[str, str | bytes]  # path in the folder -> content
    numbers: Mapping[str, Any]


@dataclass(frozen=True)
class Drawing:
    """A figure with its name (no ending) and a text for those who cannot see it."""

    name: str
    figure: Figure
    alt: str


@dataclass(frozen=True)
class Report:
    title: str
    opening: Sequence[str]  # sentences
    conditions: Mapping[str, str]  # what all numbers share
    parts: Sequence[ReportPart]
    commands: str  # how to make it again
    notes: Sequence[str] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)  # of the whole


def table_part(title: str, name: str, results: Sequence[Result], numbers: Mapping[str, Any]) -> ReportPart:
    """One table for each result; ``name`` begins the names of their files."""
    files = {f"tables/{name}-{result.measured.spec.shot}shot.tex": to_latex(result.table) for result in results}
    plain = [result.to_json() for result in results]
    markdown = "\n".join(to_markdown(result.table) for result in results)
    return ReportPart(
        title, [to_html(result.table) for result in results], markdown, files, {**numbers, "tables": plain}
    )


def figure_part(
    title: str, drawings: Sequence[Drawing], below: Sequence[str], numbers: Mapping[str, Any]
) -> ReportPart:
    """Figures in a row where there is room, and ``below`` them paragraphs."""
    files: dict[str, str | bytes] = {}
    shown: list[Html] = []
    lines: list[str] = []
    for drawing in drawings:
        svg, png = to_svg(drawing.figure), to_png(drawing.figure)
        files |= {f"figures/{drawing.name}.svg": svg, f"figures/{drawing.name}.png": png}
        # The smaller of the two on the page: pictures as PNG, lines as SVG.
        picture: str | bytes = svg if len(svg) < len(png) else png
        shown.append(on_page(picture, alt=drawing.alt))
        lines.append(f"![{drawing.alt}](figures/{drawing.name}.png)\n")
    body: list[str] = [side_by_side(*shown), *below] if len(shown) > 1 else [*shown, *below]
    return ReportPart(title, body, "\n".join([*lines, *(f"{text}\n" for text in below)]), files, numbers)


def write_report(report: Report, out: Path) -> Path:
    """Every file is replaced as a whole; the page comes last, so what it shows is there."""
    for part in report.parts:
        for name, content in part.files.items():
            with replacing(out / name) as partial:
                partial.write_bytes(content if isinstance(content, bytes) else content.encode())
    numbers = {
        "command": report.commands,
        "version": __version__,
        **report.numbers,
        "found": list(report.opening),
        "pieces": [dict(part.numbers) for part in report.parts],
    }
    write_text(out / NUMBERS, json.dumps(numbers, indent=1) + "\n")
    write_text(out / MARKDOWN, markdown(report))
    write_text(out / HTML, html(report))
    return out / HTML


def html(report: Report) -> str:
    sections = [
        Section("What was found", [*report.opening, facts(report.conditions), *report.notes]),
        *(Section(part.title, part.html) for part in report.parts),
        Section("Make it again", [code(report.commands)]),
    ]
    return page(report.title, sections)


def markdown(report: Report) -> str:
    lines = [f"# {report.title}", "", *(f"{sentence}\n" for sentence in report.opening)]
    lines += ["; ".join(f"{name}: {value}" for name, value in report.conditions.items()) + ".", ""]
    lines += [f"{note}\n" for note in report.notes]
    for part in report.parts:
        lines += [f"## {part.title}", "", part.markdown]
    return "\n".join([*lines, "## Make it again", "", "```sh", report.commands, "```", ""])
