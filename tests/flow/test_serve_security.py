"""Who may ask, from where, how much and how slowly."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from glocal.serve.security import COOKIE, cookie_of
from glocal.serve.limits import HeadTimeout
from glocal.serve.limits import Limits, Settings
from glocal.serve.snapshot import Snapshot
from serving import PAGE, client, detail, tiny_file, uploads

TOKEN = "correct horse battery"
SMALL = Limits(file_bytes=2000, request_bytes=6000, waiting_bytes=9000, pixels=2000, images=3, upload_seconds=0.3)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_file(tmp_path_factory.mktemp("guard"))


@pytest.fixture(scope="module")
def open_(file: Path) -> Iterator[httpx.Client]:
    with client(file, settings=Settings(limits=SMALL)) as asking:
        yield asking


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """With a token that the client does not send."""
    with client(tiny_file(tmp_path_factory.mktemp("closed")), settings=Settings(token=TOKEN)) as asking:
        yield asking


def test_every_answer_has_the_safe_headers(open_: httpx.Client) -> None:
    for path in ("/", "/page/index.html", "/state", "/nowhere", "/health"):
        headers = open_.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers or headers["server"] == "uvicorn"
    assert open_.get("/state").headers["cache-control"] == "no-store"


def test_the_page_has_no_way_out_of_its_folder(open_: httpx.Client) -> None:
    assert open_.get("/page/app.js").headers["content-type"].startswith("text/javascript")
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/page//etc/passwd", "/page/%00"):
        assert open_.get(path).status_code == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]"])
def test_without_a_token_only_this_machine_is_answered(open_: httpx.Client, host: str) -> None:
    assert "--token" in detail(open_.get("/state", headers={"Host": host}), 403, "origin")


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1", "[::1]:8800", "LOCALHOST"])
def test_this_machine_has_several_names(open_: httpx.Client, host: str) -> None:
    assert open_.get("/state", headers={"Host": host}).status_code == 200


def test_a_foreign_page_changes_nothing(open_: httpx.Client) -> None:
    bare = httpx.Client(base_url=open_.base_url)
    assert "X-Glocal" in detail(bare.post("/undo"), 403, "origin")
    foreign = {"Origin": "http://evil.example"}
    assert detail(bare.post("/undo", headers=PAGE | foreign), 403, "origin")
    assert detail(bare.post("/predict", files=uploads("one", 0, 1), headers=foreign), 403, "origin")
    assert detail(bare.post("/undo", headers=PAGE | {"Origin": "null"}), 403, "origin")
    assert detail(bare.post("/undo", headers=PAGE | {"Origin": "http://[broken"}), 403, "origin")
    assert bare.post("/predict", files=uploads("one", 0, 1)).status_code == 200  # curl needs no header to ask
    own = {"Origin": f"http://{open_.base_url.netloc.decode()}"}
    assert detail(bare.post("/redo", headers=PAGE | own), 422, "rule")
    bare.close()


def test_a_token_opens(closed: httpx.Client) -> None:
    assert closed.get("/health").status_code == 200
    for path in ("/state", "/", "/metrics", "/page/app.js", "/?token=wrong", "/openapi.json"):
        refused = closed.get(path)
        assert "Bearer" in detail(refused, 401, "token")
        assert refused.headers["www-authenticate"] == "Bearer"
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert closed.get("/state", headers=right | {"Host": "parts.example"}).status_code == 200
    program = httpx.Client(base_url=closed.base_url, headers=right)
    assert detail(program.post("/redo"), 422, "rule")  # who sends the token itself needs no other header
    program.close()
    for wrong in ("Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xff", "x" * 5000):
        assert detail(closed.get("/state", headers={"Authorization": wrong.encode("latin-1")}), 401, "token")  # type: ignore


def test_a_token_in_the_address_becomes_a_cookie(closed: httpx.Client) -> None:
    welcome = closed.get("/", params={"token": TOKEN})
    assert (welcome.status_code, welcome.headers["location"]) == (303, "./")
    words = welcome.headers["set-cookie"]
    assert "HttpOnly" in words
    assert "SameSite=strict" in words
    assert TOKEN not in words
    proxied = closed.get("/", params={"token": TOKEN}, headers={"X-Forwarded-Proto": "https"})
    assert "Secure" in proxied.headers["set-cookie"]
    page = httpx.Client(base_url=closed.base_url, cookies={COOKIE: cookie_of(TOKEN)})
    assert page.get("/state").status_code == 200
    assert detail(page.post("/redo"), 403, "origin")
    assert detail(page.post("/redo", headers=PAGE), 422, "rule")
    page.close()
    closed.cookies.clear()


def test_limits_of_an_upload(open_: httpx.Client) -> None:
    def send(*pictures: bytes) -> httpx.Response:
        return open_.post("/predict", files=[("images", (f"{i}.png", data)) for i, data in enumerate(pictures)])

    (one,) = (part[1][1] for part in uploads("one", 0, 1))
    assert send(one, one, one).status_code == 200
    assert "at most 3 files" in detail(send(one, one, one, one), 413, "too-large")
    assert "at most 2,000 bytes" in detail(send(b"x" * 2001), 413, "too-large")
    assert "6,000 bytes" in detail(send(b"x" * 7000), 413, "too-large")
    chunked = open_.post(
        "/predict",
        content=(b"x" * 1000 for _ in range(9)),
        headers={"content-type": "multipart/form-data; boundary=b"},
    )
    assert chunked.status_code in (400, 413)
    large = open_.post("/predict", files=[("images", ("large.pbm", b"P4 100 100\n" + b"0" * 1250))])
    assert "more than 2,000 pixels" in large.json()["answers"][0]["error"]
    field = open_.post("/classes", data={"name": "x" * 5000}, files=[("images", ("a.png", b""))])
    assert field.status_code == 413
    extra = {f"field {i}": "y" for i in range(9)}
    assert "at most 8 fields" in detail(
        open_.post("/classes", data=extra, files=uploads("six", 0, 1)), 413, "too-large"
    )


def test_names_of_files_are_one_short_line(open_: httpx.Client) -> None:
    (_, (_, one, _)) = uploads("one", 0, 1)[0]
    for sent, shown in {
        "../../etc/passwd": "passwd",
        "C:\\Windows\\a.png": "a.png",
        "<script>alert(1)<": "<script>alert(1)<",
        "x" * 300: "x" * 120,
        "a\u202e\u200bgnp.exe": "agnp.exe",
        "..": "..",
        "/": "picture",
    }.items():
        found = open_.post("/predict?remember=false", files=[("images", (sent, one))]).json()
        assert found["answers"][0]["name"] == shown


def test_a_body_that_comes_too_slowly_is_dropped(open_: httpx.Client) -> None:
    where = urlsplit(str(open_.base_url))
    with socket.create_connection((where.hostname, where.port), timeout=20) as slow:
        head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        slow.sendall(f"{head}Content-Length: 1000\r\n\r\n--b\r\n".encode())
        started = time.monotonic()
        answer = b"".join(iter(lambda: slow.recv(4096), b"")).decode()
        assert time.monotonic() - started >= 0.25
    assert answer.startswith("HTTP/1.1 408")
    assert "urn:glocal:too-slow" in answer


def test_a_head_that_does_not_come_is_not_waited_for(open_: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeadTimeout, "head_seconds", 0.2)
    where = urlsplit(str(open_.base_url))
    for begun in (b"", b"GET /state HTTP/1.1\r\nHost: local"):
        with socket.create_connection((where.hostname, where.port), timeout=20) as slow:
            slow.sendall(begun)
            assert slow.recv(4096) == b""
    with socket.create_connection((where.hostname, where.port), timeout=20) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.recv(4096).startswith(b"HTTP/1.1 200")
        slow.sendall(b"GET /state HTT")  # a second one on the same connection
        while slow.recv(4096):
            pass


def test_a_full_queue_answers_429(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    predict = Snapshot.predict
    monkeypatch.setattr(Snapshot, "predict", lambda *given: gate.wait(60) and predict(*given))
    full = Settings(queue=2, limits=Limits(answer_seconds=0.2))
    with client(tiny_file(tmp_path), settings=full) as asking, ThreadPoolExecutor(1) as other:
        assert detail(asking.post("/predict", files=uploads("one", 0, 3)), 413, "too-large")
        late = other.submit(asking.post, "/predict", files=uploads("one", 0, 2))
        while "glocal_queue_pictures 2" not in asking.get("/metrics").text:
            time.sleep(0.01)
        refused = asking.post("/predict", files=uploads("one", 0, 1))
        assert "too many pictures at once" in detail(refused, 429, "busy")
        assert int(refused.headers["retry-after"]) >= 1
        assert "not answered in time" in detail(late.result(), 429, "busy")
        gate.set()
        while "glocal_queue_pictures 0" not in asking.get("/metrics").text:
            time.sleep(0.01)
        assert asking.post("/predict", files=uploads("one", 0, 2)).status_code == 200


def test_uploads_at_once_are_bounded(file: Path, open_: httpx.Client) -> None:
    """Two that wait for the rest of theirs leave no room for a third."""
    where = urlsplit(str(open_.base_url))
    head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    part = b'--b\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n' + b"x" * 1500 + b"\r\n"
    body = 3 * part
    some = [socket.create_connection((where.hostname, where.port), timeout=20) for _ in range(3)]
    for each in some:
        each.sendall(f"{head}Content-Length: 5500\r\n\r\n".encode() + body)
    said = sorted(each.recv(4096).decode().split()[1] for each in some)
    for each in some:
        each.close()
    assert said == ["408", "429", "429"] or said == ["408", "408", "429"]
