"""Run the walk with photos and put what it prints today under every command.

    python tools/tutorial_page.py docs/walk.md

``tests/flow/test_tutorial.py`` fails while a text block says something else.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from glocal.cli.main import app
from glocal.common.files import write_text

COMMAND = "python tools/tutorial_page.py docs/walk.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOOLS = Path(__file__).parent
WIDE = {"COLUMNS": "200"}  # nothing is wrapped


class Step(NamedTuple):
    line: int  # in the page
    printed: str
    shown: str  # by the text block that follows
    place: slice  # of what is shown, in the page


def run(page: str) -> Iterator[Step]:
    """Every python and sh block, in order, in the current folder."""
    namespace: dict[str, Any] = {"__name__": "tutorial"}
    found = list(FENCE.finditer(page))
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block[1] == "text":
            continue
        printed = io.StringIO()
        if block[1] == "python":
            with contextlib.redirect_stdout(printed):
                exec(compile(block[2], "tutorial", "exec"), namespace)
        for words in map(shlex.split, block[2].splitlines() if block[1] == "sh" else []):
            if words[0] == "python":
                subprocess.run([sys.executable, TOOLS / Path(words[1]).name, *words[2:]], check=True)
                continue
            done = CliRunner().invoke(app, words[1:])
            assert done.exit_code == 0, f"{words}: {done.output} {done.exception!r}"
            printed.write(done.stderr + done.stdout)
        place = slice(*after.span(2)) if after is not None and after[1] == "text" else slice(0, 0)
        yield Step(page.count("\n", 0, block.start()) + 2, printed.getvalue(), page[place], place)


def current(page: str) -> str:
    """The page with what its commands print today."""
    for step in reversed(list(run(page))):
        if step.shown:
            page = page[: step.place.start] + step.printed + page[step.place.stop :]
    return page


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(f"usage: {COMMAND}", file=sys.stderr)
        return 2
    path = Path(arguments[0]).resolve()
    os.environ |= WIDE
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        text = current(path.read_text("utf-8"))
    write_text(path, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
