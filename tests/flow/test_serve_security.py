"""Who may ask, from where, how much and how slowly."""

from __future__ import annotations

import select
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import serving
from glocal.serve.connections import Connection
from glocal.serve.security import COOKIE, Limits, Settings, cookie_of
from glocal.serve.snapshot import Snapshot
from hostile_photos import repeated_scan
from serving import PAGE, client, detail, everything, png, tiny_file, uploads
from waiting import PATIENCE, wait_for

TOKEN = "correct horse battery"
SMALL = Limits(file_bytes=2000, request_bytes=6000, waiting_bytes=9000, pixels=2000, images=3)
UPLOAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
PART = b'--b\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n'


def served(settings: Settings) -> Any:
    """A server for all tests of this file."""

    @pytest.fixture(scope="module")
    def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
        with client(tiny_file(tmp_path_factory.mktemp("served")), settings=settings) as asking:
            yield asking

    return asking


open_ = served(Settings(limits=SMALL))
closed = served(Settings(token=TOKEN))  # which the client does not send
hurried = served(Settings(limits=replace(SMALL, upload_seconds=0.5)))  # for those who are too slow on purpose


def connect(asking: httpx.Client) -> socket.socket:
    return serving.connect(str(asking.base_url))


def heard(connection: socket.socket) -> str:
    return everything(connection).decode()


def test_every_answer_has_the_safe_headers(open_: httpx.Client) -> None:
    for path in ("/", "/page/index.html", "/state", "/nowhere", "/health"):
        headers = open_.get(path).headers
        policy = headers["content-security-policy"]
        assert ("default-src 'self'" in policy, "frame-ancestors 'none'" in policy, "unsafe" in policy) == (1, 1, 0)
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert "server" not in headers
    assert open_.get("/state").headers["cache-control"] == "no-store"


def test_the_page_has_no_way_out_of_its_folder(open_: httpx.Client) -> None:
    assert open_.get("/page/app.js").headers["content-type"].startswith("text/javascript")
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/page//etc/passwd", "/page/%00"):
        assert open_.get(path).status_code == 404


def test_without_a_token_only_this_machine_is_answered(open_: httpx.Client) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]"):
        assert "--token" in detail(open_.get("/state", headers={"Host": host}), 403, "origin")
    for host in ("localhost", "localhost:9", "127.0.0.1", "[::1]:8800", "LOCALHOST"):
        assert open_.get("/state", headers={"Host": host}).status_code == 200


def test_a_foreign_page_changes_nothing(open_: httpx.Client) -> None:
    with httpx.Client(base_url=open_.base_url, timeout=PATIENCE) as bare:
        assert "X-Glocal" in detail(bare.post("/undo"), 403, "origin")
        for origin in ("http://evil.example", "null", "http://[broken"):
            assert detail(bare.post("/undo", headers=PAGE | {"Origin": origin}), 403, "origin")
        foreign = {"Origin": "http://evil.example"}
        assert detail(bare.post("/predict", files=uploads("one", 0, 1), headers=foreign), 403, "origin")
        assert bare.post("/predict", files=uploads("one", 0, 1)).status_code == 200  # curl needs no header to ask
        own = {"Origin": f"http://{open_.base_url.netloc.decode()}"}
        assert detail(bare.post("/redo", headers=PAGE | own), 422, "rule")


def test_a_token_opens(closed: httpx.Client) -> None:
    assert closed.get("/health").status_code == 200
    for path in ("/state", "/", "/metrics", "/page/app.js", "/?token=wrong", "/openapi.json"):
        refused = closed.get(path)
        assert "Bearer" in detail(refused, 401, "token")
        assert refused.headers["www-authenticate"] == "Bearer"
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert closed.get("/state", headers=right | {"Host": "parts.example"}).status_code == 200
    with httpx.Client(base_url=closed.base_url, headers=right, timeout=PATIENCE) as program:
        assert detail(program.post("/redo"), 422, "rule")  # who sends the token itself needs no other header
    for wrong in ("Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xff", "x" * 5000):
        assert detail(closed.get("/state", headers={"Authorization": wrong.encode("latin-1")}), 401, "token")  # type: ignore


def test_a_token_in_the_address_becomes_a_cookie(closed: httpx.Client) -> None:
    welcome = closed.get("/", params={"token": TOKEN})
    assert (welcome.status_code, welcome.headers["location"]) == (303, "./")
    cookie = welcome.headers["set-cookie"]
    assert ("HttpOnly" in cookie, "SameSite=strict" in cookie, TOKEN in cookie) == (True, True, False)
    proxied = closed.get("/", params={"token": TOKEN}, headers={"X-Forwarded-Proto": "https"})
    assert "Secure" in proxied.headers["set-cookie"]
    with httpx.Client(base_url=closed.base_url, cookies={COOKIE: cookie_of(TOKEN)}, timeout=PATIENCE) as page:
        assert page.get("/state").status_code == 200
        assert detail(page.post("/redo"), 403, "origin")
        assert detail(page.post("/redo", headers=PAGE), 422, "rule")
    closed.cookies.clear()


def test_limits_of_an_upload(open_: httpx.Client) -> None:
    def send(*pictures: bytes) -> httpx.Response:
        return open_.post("/predict", files=[("images", (f"{i}.png", data)) for i, data in enumerate(pictures)])

    (one,) = (part[1][1] for part in uploads("one", 0, 1))
    assert send(one, one, one).status_code == 200
    assert "number of files is 3" in detail(send(one, one, one, one), 400, "invalid")
    assert "at most 2,000 bytes" in detail(send(b"x" * 2001), 413, "too-large")
    assert "6,000 bytes" in detail(send(b"x" * 7000), 413, "too-large")
    kind = {"content-type": "multipart/form-data; boundary=b"}
    assert open_.post("/predict", content=(b"x" * 1000 for _ in range(9)), headers=kind).status_code in (400, 413)
    assert "more than 2,000 pixels" in send(b"P4 100 100\n" + b"0" * 1250).json()["answers"][0]["error"]
    images = [("images", ("a.png", b""))]
    assert open_.post("/classes", data={"name": "x" * 5000}, files=images).status_code == 400
    extra = {f"field {i}": "y" for i in range(9)}
    assert "number of fields is 8" in detail(open_.post("/classes", data=extra, files=images), 400, "invalid")


def test_who_hangs_up_leaves_no_work(tmp_path: Path) -> None:
    slow = [("images", ("slow.jpg", repeated_scan(3000, 60)))] * 40
    with client(tiny_file(tmp_path)) as asking:
        body = httpx.Request("POST", f"{asking.base_url}/predict", files=slow)
        head = "".join(f"{name}: {value}\r\n" for name, value in body.headers.items())
        with connect(asking) as one:
            one.sendall(f"POST /predict HTTP/1.1\r\n{head}\r\n".encode() + body.read())
            wait_for(lambda: "glocal_queue_pictures 40.0" in asking.get("/metrics").text)
        wait_for(lambda: 'route="/predict",status="400"' in asking.get("/metrics").text)  # the server has noticed
        wait_for(lambda: "glocal_queue_pictures 0.0" in asking.get("/metrics").text)
        assert "glocal_batch_pictures_count 0.0" in asking.get("/metrics").text


def test_a_form_that_was_cut_short_is_no_form(open_: httpx.Client) -> None:
    """Also when it ends between two parts, and its length is what the head says."""
    body = b'--b\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\nx\r\n--b'
    kind = {"content-type": "multipart/form-data; boundary=b"}
    assert "cut short" in detail(open_.post("/predict", content=body, headers=kind), 400, "invalid")
    assert open_.post("/predict", content=body + b"--\r\n", headers=kind).json()["answers"][0]["name"] == "a"
    for boundary in ("", "; boundary", "; boundary=", "; boundary=" + "x" * 71):
        kind = {"content-type": f"multipart/form-data{boundary}"}
        assert "cannot be read" in detail(open_.post("/predict", content=body, headers=kind), 400, "invalid")


def test_an_upload_is_never_written_to_a_temporary_file(closed: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", None)
    noise = np.random.default_rng(0).integers(0, 256, (700, 700, 3), dtype=np.uint8)
    files = {"images": ("large.png", png(noise))}
    assert len(files["images"][1]) > 1 << 20
    assert closed.post("/predict", files=files, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_names_of_files_are_one_short_line(open_: httpx.Client) -> None:
    (_, (_, one, _)) = uploads("one", 0, 1)[0]
    for sent, shown in {
        "../../etc/passwd": "passwd",
        "C:\\Windows\\a.png": "a.png",
        "<script>alert(1)<": "<script>alert(1)<",
        "x" * 300: "x" * 120,
        "a\u202e\u200bgnp.exe": "agnp.exe",
        "..": "..",
        "/": "photo",
    }.items():
        found = open_.post("/predict?remember=false", files=[("images", (sent, one))]).json()
        assert found["answers"][0]["name"] == shown


def test_a_body_that_comes_too_slowly_is_dropped(hurried: httpx.Client) -> None:
    with connect(hurried) as slow:
        slow.sendall(UPLOAD + b"Content-Length: 1000\r\n\r\n--b\r\n")
        answer = heard(slow)
    assert answer.startswith("HTTP/1.1 408")
    assert "urn:glocal:too-slow" in answer


@pytest.mark.parametrize(
    ("begun", "answer"),
    [(b"GET /state HTTP/1.1\r\nX-Long: ", b""), (UPLOAD + b"Content-Length: 5000\r\n\r\n" + PART, b"HTTP/1.1 408")],
    ids=["head", "body"],
)
def test_who_keeps_sending_a_little_is_dropped_too(
    hurried: httpx.Client, monkeypatch: pytest.MonkeyPatch, begun: bytes, answer: bytes
) -> None:
    """The time is that of the whole head or body: a byte now and then does not renew it."""
    monkeypatch.setattr(Connection, "head_seconds", PATIENCE if answer else 0.5)
    with connect(hurried) as slow:
        slow.sendall(begun)
        until, said = time.monotonic() + PATIENCE, b""
        with suppress(ConnectionError):  # a byte that comes after the end is answered with a reset
            while not select.select([slow], [], [], 0.02)[0]:
                assert time.monotonic() < until, "still listened to"
                slow.sendall(b"x")
        with suppress(ConnectionError):
            said = slow.recv(12)
        assert said == answer


def test_a_head_that_does_not_come_is_not_waited_for(open_: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "head_seconds", 1.0)
    for begun in (b"", b"GET /state HTTP/1.1\r\nHost: local"):
        with connect(open_) as slow:
            slow.sendall(begun)
            assert heard(slow) == ""
    with connect(open_) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.recv(4096).startswith(b"HTTP/1.1 200")
        slow.sendall(b"GET /state HTT")  # a second one on the same connection
        assert "HTTP" not in heard(slow)


def test_a_full_queue_answers_429(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, predict = threading.Event(), Snapshot.predict
    monkeypatch.setattr(Snapshot, "predict", lambda *given: gate.wait(PATIENCE) and predict(*given))
    with client(tiny_file(tmp_path), settings=Settings(queue=2)) as asking, ThreadPoolExecutor(1) as other:
        assert "number of files is 2" in detail(asking.post("/predict", files=uploads("one", 0, 3)), 400, "invalid")
        late = other.submit(asking.post, "/predict", files=uploads("one", 0, 2))
        wait_for(lambda: "glocal_queue_pictures 2.0" in asking.get("/metrics").text)
        refused = asking.post("/predict", files=uploads("one", 0, 1))
        assert "too many photos at once" in detail(refused, 429, "busy")
        assert int(refused.headers["retry-after"]) >= 1
        gate.set()
        assert late.result().status_code == 200
        assert asking.post("/predict", files=uploads("one", 0, 2)).status_code == 200


def test_what_takes_too_long_is_told_to_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, predict = threading.Event(), Snapshot.predict
    monkeypatch.setattr(Snapshot, "predict", lambda *given: gate.wait(PATIENCE) and predict(*given))
    with client(tiny_file(tmp_path), settings=Settings(limits=Limits(answer_seconds=0.5))) as asking:
        assert "not answered in time" in detail(asking.post("/predict", files=uploads("one", 0, 2)), 429, "busy")
        assert "glocal_queue_pictures 0.0" in asking.get("/metrics").text
        gate.set()


def test_uploads_at_once_are_bounded(open_: httpx.Client) -> None:
    """Two that wait for the rest of theirs leave no room for a third, which is told at once."""
    body = 3 * (PART + b"x" * 1400 + b"\r\n") + b"--b--\r\n"
    with ExitStack() as stack:
        some = [stack.enter_context(connect(open_)) for _ in range(3)]
        for each in some:
            each.sendall(UPLOAD + f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body[:-2])
        told = select.select(some, [], [], PATIENCE)[0]
        assert {heard(each).split()[1] for each in told} == {"429"}
        others = [each for each in some if each not in told]
        for each in others:
            with suppress(ConnectionError):  # perhaps it was told meanwhile
                each.sendall(body[-2:])
        assert sorted(heard(each).split()[1] for each in others) in (["200"], ["200", "200"], ["200", "429"])
