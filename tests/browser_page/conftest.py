"""The page of ``glocal serve`` in a headless Chromium: one server, tabs that must not complain, and a fresh start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from page import OpenPage, expect

from browser import find_browser
from serving import PAGE, listening

EXPECT = 60_000  # milliseconds
FLAGS = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the server."""
    return tmp_path_factory.mktemp("page") / "digits.glocal"


@pytest.fixture(scope="session")
def server(served: Path) -> Iterator[str]:
    """The address of a server with a tiny model, the same for all tests."""
    with listening(served) as address:
        yield address


@pytest.fixture
def api(server: str) -> Iterator[httpx.Client]:
    """A client of a server that knows nothing: what the last test taught is undone, what it asked is forgotten."""
    with httpx.Client(base_url=server, headers=PAGE, timeout=120) as client:
        for query in client.get("/review").json()["recent"]:
            client.delete(f"/review/queries/{query['id']}").raise_for_status()
        while client.get("/state").json()["classes"]:
            client.post("/undo").raise_for_status()
        yield client


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """For a module and not longer: while it is there, asyncio takes the main thread for occupied."""
    from playwright.sync_api import sync_playwright

    expect.set_options(timeout=EXPECT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any, api: httpx.Client) -> Iterator[OpenPage]:
    """Opens the page in a tab of its own; at the end no tab may have complained but of the allowed HTTP errors."""
    complaints: list[str] = []
    contexts = []

    def open_(section: str = "teach", *, allowed: tuple[int, ...] = (), first: bool = False, **settings: Any) -> Any:
        """``first``: as on a first visit, with the tour."""

        def complain(said: Any) -> None:
            told = any(f"responded with a status of {status}" in said.text for status in allowed)
            if said.type in ("error", "warning") and not told:
                complaints.append(said.text)

        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        context.set_default_timeout(EXPECT)
        contexts.append(context)
        if not first:
            context.add_init_script("localStorage.setItem('glocal-tour', 'seen')")
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("console", complain)
        page.goto(str(api.base_url) if section == "teach" else f"{api.base_url}#{section}")
        page.locator(f"#{section}").wait_for()
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
