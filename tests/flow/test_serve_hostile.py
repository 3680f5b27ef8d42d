"""Thousands of requests that mean harm: no answer above 499, no crash, nothing written where it does not belong."""

from __future__ import annotations

import json
import os
import random
import select
import socket
import struct
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from glocal.serve.connections import Connection
from glocal.serve.security import Limits, Settings
from serving import PAGE, connect, everything, listening, png, tiny_file, uploads
from waiting import PATIENCE

BOUNDARY = "b0undary"
FORMS = ("/predict", "/classes", "/photos", "/predict?remember=false")
ODD = [
    "", " ", ".", "..", "../../x", "..\\..\\x", "/etc/passwd", "C:\\x", "a/b", "\0", "a\0b", "\n",
    "a\r\nSet-Cookie: x=1", "\ud800", "\u202egnp.exe", "é", "e\u0301", "unknown", "UNKNOWN", "x" * 201, "x" * 5000,
    "<script>alert(1)</script>", "'; DROP TABLE classes; --", "{{7*7}}", "${jndi:ldap://x}", "%00", "%2e%2e%2f", "=1+1",
    "con", "-", "__proto__", "💥" * 60, "journal.json", "lock", ".partial", "*", "?", "#", "&", "zero", "Zero",
]  # fmt: skip


@dataclass(frozen=True)
class Hostile:
    kind: str
    raw: bytes
    slow: bool = False  # the rest never comes


def hostile_requests(rng: random.Random, known: list[str]) -> Iterator[Hostile]:
    makers: list[Callable[[random.Random, list[str]], bytes]] = [
        bad_forms, bad_forms, truncated_forms, bombs, odd_names, odd_paths, broken_json, broken_json, odd_headers,
        garbage, giants, good_ones,
    ]  # fmt: skip
    while True:
        maker = rng.choice(makers)
        yield Hostile(maker.__name__, maker(rng, known))


def slow_ones() -> list[Hostile]:
    """Few, because each takes its time."""
    form = request("POST", "/predict", part("images", b"x" * 500, "a.png"), form_type())
    return [
        Hostile("slow body", form[:-200], slow=True),
        Hostile("slow head", form[:40], slow=True),
        Hostile("slow json", request("PUT", "/threshold", b'{"value": 1', {}, length=50), slow=True),
        Hostile("silent", b"", slow=True),
        Hostile("slow chunks", request("POST", "/predict", b"5\r\n", form_type(), length=None), slow=True),
    ]


def request(
    method: str, path: str, body: bytes, headers: dict[str, str] | None = None, *, length: int | str | None = -1
) -> bytes:
    """``length``: -1 for the true one, None for chunks."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "X-Glocal: 1", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in (headers or {"Content-Type": "application/json"}).items()]
    size = len(body) if length == -1 else length
    lines.append("Transfer-Encoding: chunked" if length is None else f"Content-Length: {size}")
    return "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + body


def form_type(boundary: str = BOUNDARY) -> dict[str, str]:
    return {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def part(name: str, data: bytes, filename: str | None = None) -> bytes:
    line = f'Content-Disposition: form-data; name="{name}"' + ("" if filename is None else f'; filename="{filename}"')
    return f"--{BOUNDARY}\r\n{line}\r\n\r\n".encode("utf-8", "surrogatepass") + data + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def picture(rng: random.Random) -> bytes:
    start = rng.randrange(100)
    data: bytes = uploads(rng.choice(("zero", "one", "six")), start, start + 1)[0][1][1]
    return data


def text(rng: random.Random) -> str:
    letters = (chr(rng.randrange(1, 0x2FF)) for _ in range(rng.randrange(20)))
    return rng.choice(ODD) if rng.random() < 0.7 else "".join(letters)


def upload(rng: random.Random, name: str, data: bytes, file: str) -> bytes:
    """A form as one of the routes wants it, with this name for a class."""
    path = rng.choice(FORMS)
    field = {"/classes": "name", "/photos": "class"}.get(path)
    fields = [] if field is None else [part(field, name.encode("utf-8", "surrogatepass"))]
    return request("POST", path, form(*fields, part("images", data, file)), form_type())


def good_ones(rng: random.Random, known: list[str]) -> bytes:
    """Among all the others some that are fine: they make the others meet a server at work."""
    return upload(rng, rng.choice(["zero", "one", f"new {rng.randrange(5)}"]), picture(rng), "a.png")


def odd_names(rng: random.Random, known: list[str]) -> bytes:
    """Paths and scripts for classes and files."""
    return upload(rng, text(rng), picture(rng), text(rng).replace('"', ""))


def truncated_forms(rng: random.Random, known: list[str]) -> bytes:
    body = form(part("name", b"x"), part("images", picture(rng), "a.png"))
    short = body[: rng.randrange(len(body))]
    length = len(body) if rng.random() < 0.5 else len(short)  # the connection closes early, or all seems to be there
    return request("POST", rng.choice(FORMS), short, form_type(), length=length)


def bad_forms(rng: random.Random, known: list[str]) -> bytes:
    good = part("images", picture(rng), "a.png")
    whole = form(good)
    charset = rng.choice(["unicode_escape", "utf-7", "base64", "utf-16", "idna", "x", "rot13", "undefined"])
    other = rng.choice(
        ["application/x-www-form-urlencoded", "text/plain", "", "multipart/mixed", "multipart/form-data"]
    )
    damaged = bytearray(whole)
    for _ in range(rng.randrange(1, 30)):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    inner = whole.replace(BOUNDARY.encode(), b"inner")
    many = range(rng.randrange(300))
    noise = b"--" + BOUNDARY.encode() + b"\r\n" + rng.randbytes(rng.randrange(500)) + b"\r\n\r\n"
    kinds: list[tuple[bytes, dict[str, str]]] = [
        (whole, {"Content-Type": other}),
        (whole, form_type(rng.choice(["", '"', "x" * 300, "\xff", "a b", BOUNDARY[:-1]]))),
        (form(*[part("images", b"x", f"{i}") for i in many]), form_type()),
        (form(*[part(f"f{i}", b"x") for i in many]), form_type()),
        (form(part(text(rng), picture(rng), "a.png")), form_type()),
        (noise + whole, form_type()),
        (form(good.replace(b"Content-Disposition", b"X-" + b"y" * rng.choice((1, 100, 20_000)))), form_type()),
        (form(good.replace(b"form-data; ", b""), good, part("class", b"\xff\xfe")), form_type()),
        (
            form(part("name", b"\\ud800 x"), part("images", b"x", "\\ud800.png")),
            {"Content-Type": f"multipart/form-data; charset={charset}; boundary={BOUNDARY}"},
        ),
        (whole[:-2] + b"garbage after the end" * rng.randrange(50), form_type()),
        (bytes(damaged), form_type()),
        (form(part("images", inner, "a.png"), part("images", b"", ""), part("images", b"", "b")), form_type()),
    ]
    return request("POST", rng.choice(FORMS), *rng.choice(kinds))


def bombs(rng: random.Random, known: list[str]) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    side = rng.choice([60_000, 2**31 - 1, 20_000])
    rows = zlib.compress(bytes(20_000_000))  # 20 KB
    good = png(np.zeros((8, 8, 3), np.uint8))
    kinds = [
        good[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + good[33:],
        good[:33] + chunk(b"IDAT", rows) + good[33:],
        good[:33] + chunk(b"zTXt", b"a\0\0" + rows) + good[33:],
        good[:33] + chunk(b"iCCP", b"a\0\0" + rows) + good[33:],
        b"GIF89a\xff\xff\xff\xff\x80\0\0" + bytes(6) + b",\0\0\0\0\xff\xff\xff\xff\0\2\2D\1\0;",
        b"P6 99999999 99999999 255\n", b"P6 100000 1 255\n" + bytes(300_000)[:1000],
        b"BM" + struct.pack("<IHHIIiiHHIIiiII", 58, 0, 0, 54, 40, 2**30, -(2**30), 1, 24, 0, 4, 0, 0, 0, 0),
        b"II*\0\x08\0\0\0" + struct.pack("<HHHIIHHII", 2, 256, 4, 1, 2**31, 257, 4, 1, 2**31),
        b"\xff\xd8\xff\xc0\0\x11\x08" + struct.pack(">HH", 65535, 65535) + b"\3\1\"\0\2\x11\1\3\x11\1\xff\xd9",
        b"RIFF" + struct.pack("<I", 26) + b"WEBPVP8L" + struct.pack("<I", 10) + b"/" + b"\xff" * 9,
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>",
        b"\0\0\0\x0cjP  \r\n\x87\n" + rng.randbytes(40), b"\0\0\0\x1cftypavif" + rng.randbytes(60),
    ]  # fmt: skip
    return upload(rng, rng.choice(["zero", "bomb"]), rng.choice(kinds), "bomb.png")


def odd_paths(rng: random.Random, known: list[str]) -> bytes:
    id_ = rng.choice([*known, "0" * 64, "..", "%2e%2e", "%00", "x" * 3000, "%ff", "..%2f..%2fetc", "*", "0" * 63 + "g"])
    pattern = rng.choice(
        ["/photos/{}", "/photos/{}/thumbnail", "/queries/{}/thumbnail", "/queries/{}/overlay", "/classes/{}",
         "/page/{}", "/review/queries/{}", "/review/groups/{}", "/export/{}", "/{}", "//{}",
         "/threshold/preview?value={}", "/predict?remember={}", "/state?{}", "/?token={}"]
    )  # fmt: skip
    method = rng.choice(["GET", "DELETE", "PUT", "POST", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "BREW"])
    body = json.dumps({"name": text(rng), "class": text(rng)}).encode()
    return request(method, pattern.format(id_), body)


def broken_json(rng: random.Random, known: list[str]) -> bytes:
    """Values of the wrong type come from the schema, see test_serve_hostile.py; these are no values, or odd names."""
    id_ = rng.choice([*known, "0" * 64])
    method, path, good = rng.choice(
        [
            ("PUT", "/threshold", {"value": rng.choice([10**400, -(10**400), 1e308, 0.5])}),
            ("PATCH", f"/classes/{rng.choice(['zero', 'one', 'nobody'])}", {"name": text(rng)}),
            ("POST", f"/review/queries/{id_}", {"class": text(rng)}),
            ("POST", f"/review/groups/{id_[:16]}", {"name": text(rng), "items": [id_, id_]}),
            ("POST", rng.choice(["/undo", "/redo"]), {"x": None}),
        ]
    )
    body = json.dumps(good).encode()
    broken = [b"[" * 60_000, b"{" * 9, b"\xff\xfe", b"nul", b"1e999", b"-Infinity", b'{"value": NaN}', b'"\\ud800"']
    cut, marked = body[: rng.randrange(len(body) + 1)], b"\xef\xbb\xbf" + body
    kinds = ["application/json"] * 4 + ["text/plain", "application/json; charset=utf-16", "x"]
    headers = {"Content-Type": rng.choice(kinds)}
    if rng.random() < 0.4:
        headers["If-Match"] = rng.choice(["0", "1", '"1"', "*", "", 'W/"1"', "x" * 4000, "-1", "1e3", "１"])
    return request(method, path, rng.choice([body] * 5 + [cut, marked, *broken]), headers)


def odd_headers(rng: random.Random, known: list[str]) -> bytes:
    head = rng.choice(["GET /state HTTP/1.1", "POST /undo HTTP/1.1", "GET /health HTTP/1.0", "GET / HTTP/1.1"])
    odd = rng.choice(
        [
            "Host: evil.example", "Host: localhost\r\nHost: evil.example", "Host:", "Host: [::1", "Host: " + "a" * 9000,
            "Content-Length: -1", "Content-Length: 1\r\nContent-Length: 2", "Content-Length: 99999999999999999999",
            "Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked, gzip",
            "Transfer-Encoding: x", "Range: bytes=0-", "Accept: */*;q=\xff",
            "Expect: 100-continue\r\nContent-Length: 3", "Upgrade: websocket\r\nConnection: Upgrade",
            "Cookie: glocal=" + "x" * 9000, "Cookie: =;;;\xff", "Authorization: Bearer", "Authorization: \xff\xfe",
            "Origin: http://evil.example", "Origin: null", "Origin: http://[x", "X-Forwarded-For: " + "1.1.1.1," * 900,
            " folded: x", "no colon here", "Name\0: x", "X: a\0b", ": empty", "X" * 20_000 + ": y",
            "\r\n".join(f"X-{i}: y" for i in range(900)), "Content-Encoding: gzip\r\nContent-Length: 3",
            "Connection: close, upgrade\r\nHTTP2-Settings: x",
            "Content-Type: multipart/form-data; boundary\r\nContent-Length: 3",
        ]
    )  # fmt: skip
    host = "" if odd.startswith("Host") else "Host: localhost\r\n"
    return f"{head}\r\n{host}X-Glocal: 1\r\nConnection: close\r\n{odd}\r\n\r\nabc".encode("latin-1")


def garbage(rng: random.Random, known: list[str]) -> bytes:
    return rng.choice(
        [
            rng.randbytes(rng.randrange(1, 2000)),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(300),  # somebody speaks TLS
            b"GET / HTTP/0.9\r\n\r\n", b"GET /\r\n\r\n", b"\r\n" * 500, b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(30), b"G" * 70_000,
            b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
            b"GET http://localhost/state HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"GET \xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"GET /state?\xc3\x28=%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        ]
    )  # fmt: skip


def giants(rng: random.Random, known: list[str]) -> bytes:
    """More than the limits allow: announced, in one piece, and in chunks."""
    path = rng.choice(FORMS)
    huge = form(part("images", bytes(rng.choice((70_000, 150_000, 400_000))), "a.png"))
    chunks = b"".join(f"{len(huge):x}\r\n".encode() + huge + b"\r\n" for _ in range(2)) + b"0\r\n\r\n"
    return rng.choice(
        [
            request("POST", path, b"x" * 1000, form_type(), length=10**12),
            request("POST", path, huge, form_type()),
            request("POST", path, chunks, form_type(), length=None),
            request("PUT", "/threshold", b'{"value": ' + b"1" * 200_000 + b"}"),
        ]
    )


SLOW = 3.0  # seconds: who takes longer is dropped; on a busy machine the others may take a second
SMALL = Limits(file_bytes=100_000, request_bytes=200_000, pixels=1_000_000, images=8, upload_seconds=SLOW)
ENOUGH = 1.0  # seconds to wait for an answer before hanging up
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PLACES = {"os.rename": 2, "os.mkdir": 1, "os.remove": 1, "os.rmdir": 1, "os.link": 2, "os.symlink": 2, "os.truncate": 1}
RUNS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")


class Written:
    """What the threads of the server write, wherever; the test itself runs in the main thread and in "client" ones."""

    def __init__(self) -> None:
        self.on, self.paths, self.programs = False, set[str](), []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on or threading.current_thread() is threading.main_thread():
            return
        if threading.current_thread().name.startswith("client"):
            return
        if event == "open" and isinstance(args[0], str | bytes | Path) and (args[2] or 0) & WRITING:
            self.paths.add(os.fsdecode(args[0]))
        elif event in PLACES:
            inside = args[1] if event in ("os.remove", "os.rmdir") and args[1] != -1 else None  # an open folder
            start = "" if inside is None else os.readlink(f"/proc/self/fd/{inside}")
            self.paths.update(os.path.join(start, os.fsdecode(each)) for each in args[: PLACES[event]])
        elif event in RUNS:
            self.programs.append(event)


written = Written()


@contextmanager
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that is watched; all that it must not do is checked at the end."""
    home, scratch, here = (tmp_path / name for name in ("home", "scratch", "here"))
    for folder in (home, scratch, here):
        folder.mkdir()
    file = tiny_file(home)
    ensure_running()  # the server that forks decoders has a temporary folder
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(Connection, "head_seconds", SLOW)
    lock = home / f".{file.name}.lock"
    allowed = (str(file), f"{file}.history", str(lock), str(scratch), os.devnull)
    written.paths, written.programs, written.on = set(), [], True
    try:
        with listening(file, settings=Settings(limits=SMALL)) as address:
            yield address
            with httpx.Client(base_url=address, headers=PAGE, timeout=PATIENCE) as asking:
                assert asking.get("/health").json()["status"] == "ok"
                assert 'status="5' not in asking.get("/metrics").text  # also for those who did not wait for it
                if asking.get("/classes").json():
                    answer = asking.post("/predict", files=uploads("one", 50, 51)).json()["answers"][0]
                    assert answer["ok"]
    finally:
        written.on = False
    outside = {path for path in written.paths if not path.startswith(allowed)}
    assert not outside
    assert written.paths
    assert not written.programs
    assert list(here.iterdir()) == []
    assert list(scratch.iterdir()) == []  # a model that is read passes through, and goes
    assert {path.name for path in home.iterdir()} <= {file.name, f"{file.name}.history", lock.name}
    inside = {path.name for path in (home / f"{file.name}.history").iterdir()}
    assert inside == {"journal.json", "parts"}


def send(address: str, hostile: Hostile) -> str:
    """The status, or how the connection ended."""
    with connect(address) as one:
        try:
            one.sendall(hostile.raw)
            if not hostile.slow and not select.select([one], [], [], ENOUGH)[0]:
                one.shutdown(socket.SHUT_WR)  # the server waits for more: there is no more
            said = everything(one)
        except TimeoutError:
            raise  # the server hangs
        except OSError:
            return "closed"  # it hung up while we spoke
    return said.split(b" ", 2)[1].decode("latin-1") if said.startswith(b"HTTP/1.1 ") else "closed"


def by_hand(address: str, n: int, number: int) -> Counter[str]:
    rng = random.Random(number)
    with httpx.Client(base_url=address, timeout=PATIENCE) as asking:
        found = asking.post("/predict", files=uploads("six", 0, 3)).json()["answers"]
        photos = [photo["id"] for each in asking.get("/state").json()["classes"] for photo in each["photos"]]
    known = [each["id"] for each in found] + photos
    heard: Counter[str] = Counter()
    slow = slow_ones()
    made = islice(hostile_requests(rng, known), n - len(slow))
    with ThreadPoolExecutor(len(slow) + 4, thread_name_prefix="client") as clients:
        late = [clients.submit(send, address, each) for each in slow]
        while some := list(islice(made, 100)):
            for hostile, status in zip(some, clients.map(lambda each: send(address, each), some), strict=True):
                assert not status.startswith("5"), (hostile.kind, status, hostile.raw[:3000])
                heard[status] += 1
        for each in late:
            status = each.result()
            assert status in ("408", "closed")
            heard[status] += 1
    return heard


def by_schema(address: str, n: int, number: int) -> Counter[str]:
    """At least ``n``, from the schema that the server itself hands out: half of them as it allows, half not."""
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json", timeout=PATIENCE)
    operations = [each.ok() for each in schema.get_all_operations()]
    heard: Counter[str] = Counter()
    each_gets = n // (2 * len(operations)) + 1
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            quick = settings(
                max_examples=each_gets,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )

            @seed(number)
            @quick
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: schemathesis.Case) -> None:
                response = case.call(base_url=address, headers=PAGE | {"Host": "localhost"}, timeout=PATIENCE)
                heard[str(response.status_code)] += 1
                case.validate_response(response, checks=CHECKS)

            with suppress(Unsatisfiable):  # where nothing can be given, nothing wrong can be given
                ask()
    return heard


def test_requests_made_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(tmp_path, monkeypatch) as address:
        heard = by_hand(address, 260, 8)
    assert heard.keys() >= {"200", "400", "404", "413", "422", "403", "408"}


def test_requests_made_from_the_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(tmp_path, monkeypatch) as address:
        heard = by_schema(address, 40, 8)
    assert heard.keys() >= {"200", "422"}


@pytest.mark.long
def test_ten_thousand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = int(time.time())  # other ones on every run
    with watched(tmp_path, monkeypatch) as address:
        heard = by_schema(address, 5000, number)  # less: some addresses take nothing that could be varied
        heard += by_hand(address, 10_000 - heard.total(), number)
    print(f"seed {number}: {heard.total()} requests, {dict(sorted(heard.items()))}")
    assert heard.total() >= 10_000
