"""Makes the pictures of the documentation in this folder, from rendered parts and a headless Chromium.

    python docs/pictures/make_pictures.py

It goes the way of docs/walk.md and docs/page.md, so a picture that looks wrong is a program that works differently.
"""

from __future__ import annotations

import importlib.util
import io
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import expect, sync_playwright

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "tests"), str(HERE.parents[1] / "tools")]

from browser import find_browser  # noqa: E402
from scenes import PARTS, TAUGHT, write  # noqa: E402

DESK, PHONE = {"width": 1180, "height": 760}, {"width": 390, "height": 780}
LARGEST = 150_000  # bytes of a picture
TILE = 160  # pixels of a part in the sheet
EXPLAINED = ("gear-20", "nut-20", "hook-20", "key-20")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        subprocess.run([sys.executable, HERE.parents[1] / "tools/scenes.py", "--out", home], check=True)
        sheet(home)
        explain(home)
        group(home)
        box(home)
        command = [sys.executable, "-m", "glocal", "serve", "parts.glocal", "--port", "0"]
        (home / "page").mkdir()
        server = subprocess.Popen(
            command, cwd=home / "page", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+", server.stdout.readline())
            assert address, "the server did not start"
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
                walk(browser, address[0], home)
                exported(browser, home)
                browser.close()
        finally:
            server.terminate()
            server.wait()


def sheet(home: Path) -> None:
    """Two pictures of each part."""
    image = Image.new("RGB", (TILE * len(PARTS), TILE * 2))
    for column, name in enumerate(PARTS):
        for row, path in enumerate(write(home / "sheet", name, range(30, 32), prefix=f"{name}-")):
            image.paste(Image.open(path).resize((TILE, TILE)), (TILE * column, TILE * row))
    save(image, "parts.jpg")


def explain(home: Path) -> None:
    """What ``--explain`` draws."""
    run(home, "enroll", "photos", "-o", "walk.glocal")
    run(home, "predict", "walk.glocal", "new", "--explain", "why")
    for path in sorted((home / "why").iterdir()):
        for name in EXPLAINED:
            if name in path.name:
                save(Image.open(path).convert("RGB"), f"explain-{name.partition('-')[0]}.jpg")


def group(home: Path) -> None:
    """The sheet of `glocal group`."""
    shutil.copytree(home / "labelled" / "unknown", home / "pile")
    shutil.copytree(home / "new", home / "pile", dirs_exist_ok=True)
    run(home, "group", "walk.glocal", "pile", "--out", "groups")
    save(Image.open(home / "groups" / "sheet.jpg"), "groups.jpg")


def box(home: Path) -> None:
    """Four parts on one tray, answered one by one."""
    tray, rows = Image.new("RGB", (512, 512)), ["path,x,y,width,height"]
    for i, name in enumerate(("nut-20", "gear-20", "hook-20", "key-20")):
        x, y = i % 2 * 256, i // 2 * 256
        tray.paste(Image.open(home / "new" / f"{name}.jpg"), (x, y))
        rows.append(f"tray.jpg,{x + 20},{y + 20},216,216")
    (home / "tray").mkdir()
    tray.save(home / "tray" / "tray.jpg", quality=90)
    (home / "boxes.csv").write_text("\n".join(rows), "utf-8")
    run(home, "predict", "walk.glocal", "tray", "--boxes", "boxes.csv", "--explain", "boxed")
    save(Image.open(home / "boxed" / "00002-tray.png").convert("RGB"), "explain-box.jpg")


def exported(browser: Any, home: Path) -> None:
    """The page of `glocal export`, where the package glocal-web is installed."""
    if importlib.util.find_spec("glocal_web") is None:
        print("phone.jpg is as it was: pip install ./web makes it anew")
        return
    run(home, "export", "walk.glocal", "--web", "web", "--name", "Workshop parts")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(home / "web")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page(viewport={"width": 390, "height": 1150}, color_scheme="dark")
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    page.locator("#state", has_text="Ready.").wait_for()
    page.locator("input").set_input_files([home / "new/gear-20.jpg", home / "new/key-20.jpg"])
    page.locator("#answers > li").nth(1).wait_for()
    save(Image.open(io.BytesIO(page.screenshot())).convert("RGB"), "phone.jpg")
    server.shutdown()


def run(home: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "glocal", *words], cwd=home, check=True, stdout=subprocess.DEVNULL)


def walk(browser: Any, address: str, home: Path) -> None:
    page = browser.new_page(viewport=DESK)
    page.goto(address)
    page.get_by_role("button", name="Skip the tour").click()
    for name in TAUGHT:
        page.locator("#new-files").set_input_files(sorted((home / "photos" / name).iterdir()))
        page.locator("#new-name").fill(name)
        page.get_by_role("button", name="Add class").click()
        expect(page.locator("#classes h3").last).to_have_text(name, timeout=60_000)
    picture(page, "teach")

    go(page, "ask")
    new = sorted((home / "new").iterdir()) + sorted((home / "labelled" / "unknown").iterdir())
    page.locator("#ask-files").set_input_files(new)
    expect(page.locator("#answers .verdict")).to_have_count(len(new), timeout=120_000)
    page.locator("#answers-clear").click()
    page.locator("#ask-files").set_input_files([home / "new/gear-20.jpg", home / "new/key-20.jpg"])
    expect(page.locator("#answers .verdict")).to_have_count(2, timeout=60_000)
    page.set_viewport_size({**DESK, "height": 1010})
    picture(page, "ask")
    page.set_viewport_size(DESK)

    go(page, "decide")
    expect(page.locator(".histogram")).to_be_visible()
    picture(page, "decide")
    go(page, "review")
    page.locator("#groups input[type=text]").first.fill("hook")
    picture(page, "review")

    phone = browser.new_page(viewport=PHONE, color_scheme="dark", is_mobile=True, has_touch=True)
    phone.goto(f"{address}#ask")
    phone.get_by_role("button", name="Skip the tour").click()
    phone.goto(f"{address}#ask")
    phone.locator("#ask-files").set_input_files([home / "new/nut-20.jpg"])
    expect(phone.locator("#answers .verdict")).to_have_count(1, timeout=60_000)
    picture(phone, "phone")


def go(page: Any, section: str) -> None:
    page.locator(f".top nav a[href='#{section}']").click()
    page.locator(f"#{section}").wait_for()


def picture(page: Any, name: str) -> None:
    """Without notices, which come and go."""
    page.mouse.move(0, 0)
    page.evaluate("() => document.querySelectorAll('.notice').forEach((notice) => notice.remove())")
    page.wait_for_timeout(600)
    save(Image.open(io.BytesIO(page.screenshot())).convert("RGB"), f"page-{name}.jpg")


def save(image: Image.Image, name: str) -> None:
    path = HERE / name
    image.save(path, quality=85, optimize=True)
    size = path.stat().st_size
    assert size < LARGEST, f"{path.name} has {size} bytes"
    print(f"{path.name}: {image.width} x {image.height}, {size // 1000} kB")


if __name__ == "__main__":
    main()
