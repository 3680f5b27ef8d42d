"""What the comments beside fields say, as documentation: ``seed: int = 0  # of the tasks`` documents ``seed``.

The code has one place where a field is explained, its comment.  ``comments_of`` reads it for the reference pages, and
the extension hands it to mkdocstrings, for which a comment is nothing.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
from typing import Any

try:
    import griffe
except ImportError:  # part of the extra docs; reading comments needs it not
    griffe = None  # type: ignore[assignment]


def comments_of(cls: type) -> dict[str, str]:
    """Per field of a class, its own and inherited: the comment lines above it and the comment behind it."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if each.__module__.partition(".")[0] in ("glocal", "glocal.recognizer"):
            source = textwrap.dedent(inspect.getsource(each))
            for statement in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    said = comment_at(source, statement.lineno, statement.end_lineno or statement.lineno)
                    found |= {statement.target.id: said} if said else {}
    return found


def comment_at(source: str, first: int, last: int) -> str:
    """The comment lines that stand right above line ``first`` and those behind lines ``first`` to ``last``."""
    alone, behind = _comments(source)
    above, line = [], first - 1
    while line in alone:
        above.insert(0, alone[line])
        line -= 1
    said = " ".join([*above, *(behind[i] for i in range(first, last + 1) if i in behind)])
    return "" if said.startswith(("noqa", "type:", "fmt:")) else re.sub(r"\s+", " ", said)


def _comments(source: str) -> tuple[dict[int, str], dict[int, str]]:
    """Comments by line: those that have the line to themselves, and those behind code."""
    alone, behind = {}, {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            place = behind if token.line[: token.start[1]].strip() else alone
            place[token.start[0]] = token.string.removeprefix("#").strip()
    return alone, behind


def as_markdown(docstring: str) -> str:
    """Formulas and examples of a docstring, which is reStructuredText, as the site shows them."""
    from method_pages import to_markdown

    parts = inspect.cleandoc(docstring).split("\n\n")
    shown = []
    for part in parts:
        if part.startswith(">>>"):
            shown.append(f"```pycon\n{part}\n```")
        elif part.startswith("    ") and not part.lstrip().startswith(("-", "*")):
            shown.append(part)  # set off by its indentation: as it stands
        else:
            shown.append(to_markdown(part) if ":math:" in part or part.startswith((".. math::", "===")) else part)
    return "\n\n".join(shown)


if griffe is not None:

    class FieldComments(griffe.Extension):
        """Comments beside attributes become their docstrings; docstrings become Markdown."""

        def on_attribute_instance(self, *, attr: Any, **_: Any) -> None:
            if attr.docstring is None and attr.lineno and attr.parent.is_class:
                said = comment_at("\n".join(attr.lines_collection[attr.filepath]), attr.lineno, attr.endlineno)
                if said:
                    attr.docstring = griffe.Docstring(said, parent=attr)

        def on_object(self, *, obj: Any, **_: Any) -> None:
            if obj.docstring is not None:
                obj.docstring.value = as_markdown(obj.docstring.value)
