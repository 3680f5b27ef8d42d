"""The page of ``glocal serve`` in a headless Chromium: one server, tabs that must not complain, and a fresh start."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import find_browser

STARTED = re.compile(r"http://127\.0\.0\.1:\d+/")
PATIENCE = 120  # seconds
EXPECT = 60_000  # milliseconds
FLAGS = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with a tiny model, the same for all tests: its start takes longer than most of them."""
    home = tmp_path_factory.mktemp("page")
    command = [sys.executable, "-m", "glocal", "serve", "digits.glocal", "--model", "embedded-gel", "--port", "0"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOCAL_CACHE": str(home / "cache"), "PYTHONUNBUFFERED": "1"}
    log = home / "log.txt"
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=home, env=env, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        assert process.wait(PATIENCE) in (0, -signal.SIGTERM), log.read_text()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        if found := STARTED.search(log.read_text()):
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"the server did not start: {log.read_text()}")


@pytest.fixture
def api(server: str) -> Iterator[Any]:
    """A client of a server that knows nothing: what the last test taught is undone, what it asked is forgotten."""
    import httpx

    with httpx.Client(base_url=server, headers={"X-Glocal": "1"}, timeout=PATIENCE) as client:
        for query in client.get("/review").json()["recent"]:
            client.delete(f"/review/queries/{query['id']}").raise_for_status()
        while client.get("/state").json()["classes"]:
            client.post("/undo").raise_for_status()
        yield client


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """For a module and not longer: while it is there, asyncio takes the main thread for occupied."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=EXPECT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any, api: Any) -> Iterator[Callable[..., Any]]:
    """Opens the page in a tab of its own; at the end no tab may have complained but of the allowed HTTP errors."""
    complaints: list[str] = []
    contexts = []

    def open_(section: str = "teach", *, allowed: tuple[int, ...] = (), **settings: Any) -> Any:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        context.set_default_timeout(EXPECT)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("console", lambda said: complaints.extend(_complaints(said, allowed)))
        page.goto(str(api.base_url) if section == "teach" else f"{api.base_url}#{section}")
        page.locator(f"#{section}").wait_for()
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


def _complaints(said: Any, allowed: tuple[int, ...]) -> list[str]:
    told = any(f"responded with a status of {status}" in said.text for status in allowed)
    return [] if told or said.type not in ("error", "warning") else [said.text]
