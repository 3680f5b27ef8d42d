"""Makes the pictures of the page in this folder: a server with embedded digits, and a headless Chromium.

    python docs/pictures/make_page.py

It goes the way of docs/tutorial-page.md, so a picture that looks wrong is a page that works differently.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import expect, sync_playwright

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from browser import find_browser  # noqa: E402
from photos import write  # noqa: E402

LEARNED = ("zero", "one", "two", "three", "four")
DESK, PHONE = {"width": 1180, "height": 760}, {"width": 400, "height": 780}
LARGEST = 150_000  # bytes of a picture


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        command = [sys.executable, "-m", "glocal", "serve", "digits.glocal", "--model", "embedded-gel", "--port", "0"]
        server = subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found, "the server did not start"
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
                walk(browser, found[0], home)
                browser.close()
        finally:
            server.terminate()
            server.wait()


def walk(browser: Any, address: str, home: Path) -> None:
    page = browser.new_page(viewport=DESK)
    page.goto(address)
    page.get_by_role("button", name="Skip the tour").click()
    for word in LEARNED:
        n = 3 if word == "three" else 8
        page.locator("#new-files").set_input_files(write(home / word, word, 0, n, prefix=f"{word}-"))
        page.locator("#new-name").fill(word)
        page.get_by_role("button", name="Add class").click()
        expect(page.locator("#classes h3").last).to_have_text(word)
    picture(page, "teach")

    go(page, "decide")
    page.locator("#promise").fill("15")
    page.locator("#decide-save").click()
    expect(page.locator("#decide-save")).to_be_disabled()
    go(page, "ask")
    asked = ("zero", "two", "four", "five", "nine")
    new = {word: write(home / "new", word, 40, 44, prefix=f"{word}-") for word in asked}
    page.locator("#ask-files").set_input_files([path for paths in new.values() for path in paths])
    expect(page.locator("#answers .verdict")).to_have_count(20, timeout=60_000)
    page.locator("#answers-clear").click()
    page.locator("#ask-files").set_input_files([new["two"][1], new["five"][0]])
    expect(page.locator("#answers .verdict")).to_have_count(2)
    page.set_viewport_size({**DESK, "height": 1010})
    picture(page, "ask")
    page.set_viewport_size(DESK)
    page.locator("#answers").get_by_role("button", name="Show why").first.click()
    page.locator(".overlay img").scroll_into_view_if_needed()
    page.wait_for_timeout(1000)
    picture(page, "why", page.locator(".overlay img"))

    go(page, "decide")
    slider = page.locator("#slider")
    slider.focus()
    for _ in range(20):
        slider.press("ArrowRight")
    expect(page.locator("#would-change li").first).to_be_visible()
    picture(page, "decide")
    page.locator("#decide-discard").click()
    go(page, "review")
    page.locator("#groups input[type=text]").first.fill("five")
    picture(page, "review")

    phone = browser.new_page(viewport=PHONE, color_scheme="dark", is_mobile=True, has_touch=True)
    phone.goto(f"{address}#ask")
    phone.get_by_role("button", name="Skip the tour").click()
    phone.goto(f"{address}#ask")
    phone.locator("#ask-files").set_input_files(write(home / "new", "two", 41, 42, prefix="two-"))
    expect(phone.locator("#answers .verdict")).to_have_count(1)
    picture(phone, "phone")


def go(page: Any, section: str) -> None:
    page.locator(f".top nav a[href='#{section}']").click()
    page.locator(f"#{section}").wait_for()


def picture(page: Any, name: str, part: Any = None) -> None:
    """Without notices, which come and go."""
    page.mouse.move(0, 0)
    page.evaluate("() => document.querySelectorAll('.notice').forEach((notice) => notice.remove())")
    page.wait_for_timeout(600)
    shot = Image.open(io.BytesIO((part or page).screenshot())).convert("RGB")
    path = HERE / f"page-{name}.png"
    shot.save(path, optimize=True)
    size = path.stat().st_size
    assert size < LARGEST, f"{path.name} has {size} bytes"
    print(f"{path.name}: {shot.width} x {shot.height}, {size // 1000} kB")


if __name__ == "__main__":
    main()
