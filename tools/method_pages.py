"""Write ``docs/methods``: a page per method and an index, from cards, docstrings and signatures.

    python tools/method_pages.py docs/methods

``tests/unit/test_method_pages.py`` fails while they are out of date.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glocal.common.errors import DataError
from glocal.common.files import write_text
from glocal.research.methods import METHODS, SWITCHES, Method
from glocal.research.methods.base import MethodCard, Paper
from glocal.research.ops.open_scores import OPEN_SCORES

COMMAND = "python tools/method_pages.py docs/methods"
GENERATED = f"<!-- Written by {COMMAND}; change the docstring or the card of the class instead. -->"
EMPTY = "–"
DIM = 64  # of the example that defaults are read from; none of them depends on it
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


def pages() -> dict[str, str]:
    """Every method's page and the index, README.md."""
    return {"README.md": _index()} | {f"{name}.md": _page(name) for name in METHODS}


def _page(name: str) -> str:
    card, method, file = METHODS[name].card, METHODS[name](DIM), METHODS[name].__module__
    explained = explain(sys.modules[file].__doc__ or "")
    parts = [
        f"# {_title(name)}",
        GENERATED,
        explained.idea,
        _facts(name, card, method, file),
        "## How it works",
        explained.body,
        "## Differs from the paper",
        explained.differs,
        "## Settings",
        _settings(name, method),
        "## Open scores",
        _open_scores(method),
    ]
    return "\n\n".join(parts) + "\n"


def _index() -> str:
    rows = []
    for name in METHODS:
        card, paper = METHODS[name].card, METHODS[name].card.paper
        unread = "not read" if card.reconstruction else "ours"
        source = f"{paper.authors}, {paper.venue} {paper.year}" if paper else unread
        marks = ["reconstruction"] if card.reconstruction else []
        marks += ["transductive"] if METHODS[name](DIM).transductive else []
        rows.append([f"[`{name}`]({name}.md)", source, card.learns or "nothing", ", ".join(marks)])
    scores = [[f"`{name}`", str(score.__doc__).partition(". ")[0].strip(".")] for name, score in OPEN_SCORES.items()]
    parts = [
        "# Methods",
        GENERATED,
        "What each one computes, and where it departs from its paper. [Numbers](../results/which-method.md).\n"
        "A transductive method sees all queries of a task at once. A reconstruction is written without the authors'\n"
        "program or paper. What a method learns, it learns beside its backbone.",
        _table(["Method", "Paper", "Learns", "Note"], rows),
        "Every method also has the open scores of its logits:",
        _table(["Open score", "Formula"], scores),
        "Next: [add a method](../how-to/add-a-method.md).",
    ]
    return "\n\n".join(parts) + "\n"


def _facts(name: str, card: MethodCard, method: Method, file: str) -> str:
    path = f"src/{file.replace('.', '/')}.py"
    needs = ["the base classes"] if method.needs_base else []
    needs += ["in training, support of the unknown classes too (the mirrored task)"] if method.needs_mirror else []
    needs += [f"tasks of at least {method.min_way} classes"] if method.min_way > 1 else []
    paper = _cite(card.paper) if card.paper else "Not read" if card.reconstruction else "Ours"
    queries = "all at once (transductive)" if method.transductive else "one by one"
    lines = [
        f"- {paper}; code: [{path.rpartition('/')[2]}](../../{path}).",
        f"- It judges queries {queries} and learns {card.learns or 'nothing of its own'}.",
    ]
    lines += [f"- It needs {'; '.join(needs)}."] if needs else []
    lines += [f"- Reconstruction: {card.reconstruction}"] if card.reconstruction else []
    return "\n".join(lines)


def _cite(paper: Paper) -> str:
    cited = f"{paper.authors}, *{paper.title}*, {paper.venue} {paper.year}"
    cited += f", [arXiv:{paper.arxiv}](https://arxiv.org/abs/{paper.arxiv})" if paper.arxiv else ""
    return cited + (f", [doi:{paper.doi}](https://doi.org/{paper.doi})" if paper.doi else "")


def _settings(name: str, method: Method) -> str:
    """None leaves the value to other settings; what it comes to by default stands behind it."""
    listed = []
    for setting, parameter in inspect.signature(METHODS[name]).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and setting != "open_score":
            chosen = getattr(method, setting, None)
            derived = parameter.default is None and chosen is not None
            listed.append(f"`{setting}={parameter.default!r}`" + (f" (here {chosen!r})" if derived else ""))
    return ", ".join([*listed, *(f"`{switch}=False`" for switch in SWITCHES)]) + "."


def _open_scores(method: Method) -> str:
    own = [score for score in method.score_names if score not in OPEN_SCORES]
    lines = [f"Its own: {_codes(own)}."] if own else []
    return " ".join([*lines, f"Default: `{method.score_name}`."])


def _codes(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are Markdown already."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def _title(name: str) -> str:
    return METHODS[name].card.title or METHODS[name].__name__


# The docstring of a method as Markdown: reStructuredText in, what GitHub shows out.


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
        return _simple_table(part.splitlines())
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


def _simple_table(lines: list[str]) -> str:
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


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(f"usage: {COMMAND}", file=sys.stderr)
        return 2
    out = Path(arguments[0])
    for name, text in pages().items():
        write_text(out / name, text)
    readme = out.resolve().parents[1] / "README.md"
    if readme.is_file():
        write_text(readme, with_methods(readme.read_text("utf-8")))
    return 0


def with_methods(readme: str) -> str:
    """The README with the names of today's methods between its two comments."""
    groups = {seen: _codes([n for n in METHODS if METHODS[n](DIM).transductive == seen]) for seen in (False, True)}
    names = f"[Methods](docs/methods/README.md): {groups[False]}; seeing all queries at once: {groups[True]}."
    told = "\n".join(textwrap.wrap(names, 120, break_on_hyphens=False))
    return re.sub(
        r"(<!-- methods:.*? -->\n).*?(<!-- /methods -->)", lambda m: f"{m[1]}{told}\n{m[2]}", readme, flags=re.DOTALL
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
