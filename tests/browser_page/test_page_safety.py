"""What strangers and bad days do to the page: names with scripts in them, a busy server, none at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from page import SECTIONS, OpenPage, ask_api, digits, expect, go, needs_browser, teach

pytestmark = needs_browser

HOSTILE = "<img src=x onerror=window.hacked=1>"
WORSE = '"><svg onload=window.hacked=2>{{7*7}}${7*7}'


def test_no_name_runs_a_script(open_page: OpenPage, api: Any, tmp_path: Path) -> None:
    teach(api, tmp_path, {"zero": 3, "one": 3})
    path = digits(tmp_path, "five", 30, 31)[0]
    hostile = tmp_path / f"{HOSTILE}.png"
    path.rename(hostile)
    page = open_page()
    page.locator("#new-files").set_input_files(
        [
            {
                "name": f"{WORSE}.png",
                "mimeType": "image/png",
                "buffer": digits(tmp_path, "two", i, i + 1)[0].read_bytes(),
            }
            for i in range(3)
        ]
    )
    page.get_by_label("Name", exact=True).fill(HOSTILE)
    page.get_by_role("button", name="Add class").click()
    expect(page.locator("#classes h3").last).to_have_text(HOSTILE)
    expect(page.locator("#findings")).to_contain_text(HOSTILE)
    go(page, "ask")
    page.locator("#ask-files").set_input_files([hostile, digits(tmp_path, "two", 20, 21)[0]])
    expect(page.locator("#answers .verdict")).to_have_count(2)
    expect(page.locator("#answers .file").first).to_have_text(f"{HOSTILE}.png")
    page.get_by_role("button", name="Show why").first.click()
    for section in SECTIONS:
        go(page, section)
        page.wait_for_timeout(100)
        assert page.evaluate("window.hacked") is None
        assert page.locator("img[src=x], svg[onload]").count() == 0
    page.goto(page.url.split("#")[0] + f"#{HOSTILE}")
    assert page.evaluate("window.hacked") is None


def test_nothing_comes_from_elsewhere(open_page: OpenPage, api: Any, tmp_path: Path) -> None:
    teach(api, tmp_path, {"zero": 3})
    asked: list[str] = []
    page = open_page()
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    for section in SECTIONS:
        go(page, section)
    page.wait_for_load_state("networkidle")
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith((str(api.base_url), "blob:"))] == []


def test_a_busy_server_is_waited_for_and_a_bad_picture_is_told(open_page: OpenPage, api: Any, tmp_path: Path) -> None:
    teach(api, tmp_path, {"zero": 3, "one": 3})
    page = open_page("ask", allowed=(429,))
    refused: list[int] = []

    def refuse_once(route: Any) -> None:
        if refused:
            route.continue_()
            return
        refused.append(429)
        problem = {"type": "urn:glocal:busy", "title": "Too much at once", "status": 429, "detail": "busy"}
        route.fulfill(status=429, headers={"Retry-After": "1"}, content_type="application/problem+json", json=problem)

    page.route("**/predict", refuse_once)
    no_picture = tmp_path / "no-picture.png"
    no_picture.write_bytes(b"this is no picture")
    page.locator("#ask-files").set_input_files([digits(tmp_path, "one", 20, 21)[0], no_picture])
    expect(page.locator("#answers")).to_contain_text("The server is busy; asking again in 1 s.")
    expect(page.locator("#answers .verdict")).to_have_count(1)
    expect(page.locator("#answers .failed")).to_contain_text("no-picture.png")
    assert refused == [429]
    go(page, "teach")
    page.get_by_label("Add photos to one").set_input_files([no_picture, *digits(tmp_path, "one", 5, 6)])
    expect(page.locator(".notice.error")).to_contain_text("Left out")
    expect(page.locator(".notice.error")).to_contain_text("no-picture.png")
    expect(page.locator("#classes")).to_contain_text("4 photos")
    page.get_by_role("button", name="Dismiss").last.click()
    page.locator("#ask-files").set_input_files({"name": "words.txt", "mimeType": "text/plain", "buffer": b"words"})
    expect(page.locator(".notice.error")).to_contain_text("Only photos can be used")


def test_a_server_that_is_gone_is_told_of_and_comes_back(open_page: OpenPage, api: Any, tmp_path: Path) -> None:
    teach(api, tmp_path, {"zero": 3})
    page = open_page()
    expect(page.locator("#classes h3")).to_have_text(["zero"])
    page.evaluate("() => { window.real = fetch; window.fetch = async () => { throw new TypeError('gone'); }; }")
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(page.locator("#offline")).to_be_visible()
    page.get_by_label("Remove class zero").click()
    expect(page.locator(".notice.error")).to_contain_text("The server does not answer")
    page.evaluate("() => { window.fetch = window.real; }")
    ask_api(api, digits(tmp_path, "zero", 20, 21))
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(page.locator("#offline")).to_be_hidden()
    expect(page.locator("#recent li")).to_have_count(1)  # and it shows what happened meanwhile
