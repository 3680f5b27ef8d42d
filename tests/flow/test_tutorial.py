"""The walk is run line by line, on the pictures that it renders, and says what the program says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tutorial_page import COMMAND, run

PAGE = Path(__file__).parents[2] / "docs" / "walk.md"
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?")
HASH = re.compile(r"\b[0-9a-f]{16}\b|(?<=glocal )\d+\.\d+\.\d+")  # also the version, which will change


def test_every_line_runs_and_says_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    page = PAGE.read_text("utf-8")
    for step in run(page):
        # The words must be the same; numbers may differ a little from processor to processor, and hashes with them.
        told, written = (HASH.sub("(hash)", text) for text in (step.printed, step.shown))
        assert NUMBER.sub("#", told) == NUMBER.sub("#", written), f"line {step.line}; if it should: {COMMAND}"
        for printed, shown in zip(NUMBER.findall(told), NUMBER.findall(written), strict=True):
            if "e" not in shown:  # differences in the last digit, of which only the size matters
                assert float(printed) == pytest.approx(float(shown), rel=0.02, abs=0.02), f"line {step.line}"
    assert len(list((tmp_path / "why").glob("*.png"))) == 8
