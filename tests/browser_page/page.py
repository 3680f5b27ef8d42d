"""What tests of the page of ``glocal serve`` share: when they can run, and ways to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import photos
from browser import find_browser

try:
    from playwright.sync_api import expect
except ImportError:
    expect = None  # type: ignore[assignment]

OpenPage = Callable[..., Any]  # see conftest.py of these tests
SECTIONS = ("teach", "ask", "decide", "review", "check", "export")


def why_not() -> str | None:
    """What is missing for these tests."""
    if find_browser() is None:
        return "no Chromium is installed: install it, and the page is tried in it"
    if expect is None:
        return "playwright is not installed: pip install glocal[dev], and the page is tried"
    return None


needs_browser = [pytest.mark.browser, pytest.mark.skipif(why_not() is not None, reason=why_not() or "")]


def go(page: Any, section: str) -> None:
    page.locator(f".top nav a[href='#{section}']").click()
    page.locator(f"#{section}").wait_for()


def teach(api: Any, home: Path, shots: dict[str, int]) -> None:
    """Through the API: quick, where teaching is not what is tested."""
    for word, n in shots.items():
        files = [("images", (path.name, path.read_bytes())) for path in digits(home, word, 0, n)]
        api.post("/classes", data={"name": word}, files=files).raise_for_status()


def digits(home: Path, word: str, start: int, stop: int) -> list[Path]:
    return photos.write(home / word, word, start, stop, prefix=f"{word}-")


def ask_api(api: Any, paths: list[Path], *, remember: bool = True) -> list[dict[str, Any]]:
    files = [("images", (path.name, path.read_bytes())) for path in paths]
    answers = api.post("/predict", params={"remember": remember}, files=files).raise_for_status().json()["answers"]
    assert len(answers) == len(paths)
    return answers
