"""The tutorial is run line by line, on the embedded pictures it writes itself, and says what the program says."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from glocal.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "tutorial-practice.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?")
HASH = re.compile(r"\b[0-9a-f]{16}\b|(?<=glocal )\d+\.\d+\.\d+")  # also the version, which will change
PHOTOS = "## The same with photos"  # from here on the pictures are not in the repository


class Step(NamedTuple):
    line: int  # in the page
    printed: str
    shown: str  # by the text block that follows


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
                exec(compile(block[2], str(PAGE), "exec"), namespace)
        for words in map(shlex.split, block[2].splitlines() if block[1] == "sh" else []):
            done = CliRunner().invoke(app, words[1:])
            assert done.exit_code == 0, f"{words}: {done.output} {done.exception!r}"
            printed.write(done.stderr + done.stdout)
        shown = after[2] if after is not None and after[1] == "text" else ""
        yield Step(page.count("\n", 0, block.start()) + 2, printed.getvalue(), shown)


def test_every_line_runs_and_says_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    page = PAGE.read_text("utf-8").partition(PHOTOS)[0]
    for step in run(page):
        # The words must be the same; numbers may differ a little from processor to processor, and hashes with them.
        told, written = (HASH.sub("(hash)", text) for text in (step.printed, step.shown))
        assert NUMBER.sub("#", told) == NUMBER.sub("#", written), f"line {step.line}"
        for printed, shown in zip(NUMBER.findall(told), NUMBER.findall(written), strict=True):
            if "e" not in shown:  # differences in the last digit, of which only the size matters
                assert float(printed) == pytest.approx(float(shown), rel=0.02, abs=0.02), f"line {step.line}"
    assert len(list((tmp_path / "why").glob("*.png"))) == 2
