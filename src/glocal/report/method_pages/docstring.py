"""The docstring of a method's file as Markdown: reStructuredText in, what GitHub shows out.

Known are the parts that these docstrings have: paragraphs, ``.. math::`` and its role, double backticks, simple tables,
and the example at the end, which is left out.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

from glocal_runtime.errors import DataError

DIFFERS = "Differs from the paper:"
# Markdown takes a backslash before punctuation for an escape, and a star for emphasis, also within a formula.
TEX_WORDS = {
    r"\,": r"\thinspace ",
    r"\;": r"\thickspace ",
    r"\!": r"\negthinspace ",
    r"\{": r"\lbrace ",
    r"\}": r"\rbrace ",
    r"\|": r"\Vert ",
    "*": r"\ast ",
    "<": r"\lt ",
    ">": r"\gt ",
}
PUNCTUATION = re.compile("|".join(map(re.escape, TEX_WORDS)))


@dataclass(frozen=True)
class Explained:
    idea: str  # of the first line, behind "Author et al. year, Name:"
    body: str
    differs: str


def explain(docstring: str) -> Explained:
    text, _, _ = inspect.cleandoc(docstring).partition("\n>>> ")
    first, *rest = [part.strip("\n") for part in text.split("\n\n")]
    differs = [part for part in rest if part.startswith(DIFFERS)]
    if ": " not in first or len(differs) != 1:
        raise DataError(
            "the docstring of a method's file must begin with 'Author et al. year, Name: idea' and have one paragraph "
            f"'{DIFFERS} ...', got {len(differs)} such paragraphs after {first!r}"
        )
    return Explained(
        _sentence(to_markdown(first.partition(": ")[2])),
        "\n\n".join(to_markdown(part) for part in rest if part is not differs[0]),
        _sentence(to_markdown(differs[0].removeprefix(DIFFERS).lstrip())),
    )


def to_markdown(part: str) -> str:
    """One paragraph, formula or table."""
    if part.startswith(".. math::"):
        return f"$$\n{tex(part.removeprefix('.. math::'))}\n$$"
    if part.startswith("==="):
        return _table(part.splitlines())
    # A line within a paragraph that happens to begin with a sign would start a list.
    return re.sub(r"\n([-+]) ", r"\n\\\1 ", _inline(part))


def tex(formula: str) -> str:
    r"""On one line, and without what Markdown would read as its own.

    >>> tex(r"P^* = \mathrm{LN}_a(P + W_o\,x)")
    'P^\\ast = \\mathrm{LN} _ a(P + W_o\\thinspace x)'
    """
    worded = PUNCTUATION.sub(lambda sign: TEX_WORDS[sign[0]], formula)
    apart = re.sub(r"(?<=\W)_", " _ ", worded)  # after punctuation or a space it would open emphasis
    return " ".join(apart.split())


def _inline(text: str) -> str:
    text = re.sub(r":math:`([^`]*)`", lambda role: f"${tex(role[1])}$", text)
    text = re.sub(r"``([^`]*)``", r"`\1`", text)
    return re.sub(r"(?<=\S) {2,}", " ", text)


def _table(lines: list[str]) -> str:
    """A simple table: rules of = over, under and below its head tell where columns begin."""
    starts = [found.start() for found in re.finditer("=+", lines[0])]
    ends = [*starts[1:], None]
    rows = [
        [_inline(line[a:b].strip()).replace("|", r"\|") for a, b in zip(starts, ends, strict=True)]
        for line in lines
        if not line.startswith("===")
    ]
    rows.insert(1, ["---"] * len(starts))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _sentence(text: str) -> str:
    """With a capital, unless the first word is the letter of a formula."""
    return re.sub(r"^\W*([a-z](?=[a-z])|a(?= [a-z]{2}))", lambda begin: begin[0].upper(), text)
