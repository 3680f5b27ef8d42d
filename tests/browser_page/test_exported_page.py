"""A page that ``export_web`` wrote, in a browser that has lost its network: the answers are those of Python."""

from __future__ import annotations

import base64
import http.server
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from page import needs_browser
from test_page_looks import find_axe

from glocal.recognizer import Recognizer
from glocal.web.export import export_web
from photos import some, write

pytestmark = needs_browser
ASK = """async (text) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return window.recognizer.predict(new Blob([bytes]));
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize(("encoder", "head"), [("fast", "ridge"), ("fast", "gel"), ("better", "prototypes")])
def test_offline_answers_are_those_of_python(chromium: Any, tmp_path: Path, encoder: str, head: str) -> None:
    pytest.importorskip("glocal_web", reason="the runtime is not installed: pip install ./web (needs npm)")
    recognizer = Recognizer.enroll({word: some(word, 0, 4) for word in ("zero", "one")}, encoder=encoder, head=head)
    export_web(recognizer, tmp_path / "page", name="digits")
    photos = [*write(tmp_path / "zero", "zero", 10, 13), *write(tmp_path / "five", "five", 10, 13)]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "page")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = chromium.new_context(viewport={"width": 390, "height": 844}, service_workers="allow", bypass_csp=True)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    ready = page.locator("#state", has_text="Ready.")
    ready.wait_for()
    page.evaluate("() => navigator.serviceWorker.ready")
    server.shutdown()
    server.server_close()
    context.set_offline(True)
    page.reload()
    ready.wait_for()
    for photo, expected in zip(photos, recognizer.predict(photos), strict=True):
        answer = page.evaluate(ASK, base64.b64encode(photo.read_bytes()).decode())
        assert answer["label"] == expected.label
        assert answer["open_score"] == pytest.approx(expected.open_score, abs=1e-3)
        assert answer["probabilities"] == pytest.approx(dict(expected.probabilities), abs=1e-3)
    page.set_input_files("input", [str(photos[0]), str(photos[-1])])
    page.locator("#answers > li").nth(1).wait_for()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.type") == "file"  # the keyboard reaches the one control
    if axe := find_axe():
        page.add_script_tag(path=str(axe))
        assert page.evaluate("async () => (await axe.run()).violations.map((each) => each.id)") == []
    assert not errors
    context.close()
