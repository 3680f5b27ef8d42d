"""A page in headless Chromium: how wide it is, what its console says, and a picture of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 120  # seconds
# The page itself allows no script, so one around it measures; a window may not get as narrow as a phone, a frame does.
FRAME = """<!DOCTYPE html><html><body style="margin:0">
<iframe id="frame" src="{source}" style="width:{width}px;height:{height}px;border:0"></iframe><p id="found"></p>
<script>
document.getElementById("frame").onload = () => {{
  const page = document.getElementById("frame").contentDocument.documentElement;
  const found = [page.scrollWidth, page.clientWidth, page.scrollHeight];
  document.getElementById("found").textContent = "FOUND " + found.join(" ");
}};
</script></body></html>"""


@dataclass(frozen=True)
class Shown:
    content: int  # width of what is on the page, in pixels
    window: int  # width it may have
    height: int
    console: list[str]  # messages


def find_browser() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def show(browser: str, page: Path, *, width: int, home: Path, picture: Path | None = None) -> Shown:
    """``home`` is a folder for the frame and the browser's own files."""
    found = _measure(browser, page, width, 800, home)
    if picture is not None:
        frame = home / f"frame-{width}.html"
        frame.write_text(FRAME.format(source=page.resolve().as_uri(), width=width, height=found.height))
        _run(
            browser, home, f"--window-size={max(width, 500)},{found.height}", f"--screenshot={picture}", frame.as_uri()
        )
    return found


def _measure(browser: str, page: Path, width: int, height: int, home: Path) -> Shown:
    frame = home / f"frame-{width}.html"
    frame.write_text(FRAME.format(source=page.resolve().as_uri(), width=width, height=height))
    ended = _run(browser, home, "--window-size=1600,1000", "--dump-dom", frame.as_uri())
    numbers = re.search(r"FOUND (\d+) (\d+) (\d+)", ended.stdout)
    assert numbers, f"the page did not load: {ended.stdout[-500:]} {ended.stderr[-1000:]}"
    messages = [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
    return Shown(int(numbers[1]), int(numbers[2]), int(numbers[3]), messages)


def _run(browser: str, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={home / 'profile'}"]
    fixed += ["--allow-file-access-from-files", "--virtual-time-budget=10000", "--enable-logging=stderr"]
    return subprocess.run([browser, *fixed, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
