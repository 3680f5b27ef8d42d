"""Thousands of requests that mean harm: no answer above 499, no crash, nothing written where it does not belong."""

from __future__ import annotations

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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
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
    "", ".", "../../x", "C:\\x", "a\0b", "a\r\nSet-Cookie: x=1", "\ud800", "\u202egnp.exe", "e\u0301", "UNKNOWN",
    "x" * 5000, "<script>alert(1)</script>", "${jndi:ldap://x}", "%2e%2e%2f", "=1+1", "con", "💥" * 60, "journal.json",
    "lock", "*", "zero", "Zero",
]  # fmt: skip
ROWS = zlib.compress(bytes(20_000_000))  # 20 KB


def request(path: str, body: bytes, headers: dict[str, str], *, length: int | None = -1) -> bytes:
    """``length``: -1 for the true one, None for chunks."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "X-Glocal: 1", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
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


def slow_ones() -> list[bytes]:
    """Requests whose rest never comes; few, because each takes its time."""
    body = request("/predict", part("images", b"x" * 500, "a.png"), form_type())
    return [body[:-200], body[:40], b"", request("/predict", b"5\r\n", form_type(), length=None)]


class Hostile:
    """Forms that mean harm, and among them some that are fine: the others meet a server at work."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.kinds = rng, [self.named, self.forms, self.bombs]

    def __next__(self) -> bytes:
        return self.rng.choice(self.kinds)()

    def picture(self) -> bytes:
        start = self.rng.randrange(100)
        data: bytes = uploads(self.rng.choice(("zero", "one", "six")), start, start + 1)[0][1][1]
        return data

    def upload(self, name: str, data: bytes, file: str) -> bytes:
        """A form as one of the routes wants it, with this name for a class."""
        path = self.rng.choice(FORMS)
        field = {"/classes": "name", "/photos": "class"}.get(path)
        fields = [] if field is None else [part(field, name.encode("utf-8", "surrogatepass"))]
        return request(path, form(*fields, part("images", data, file)), form_type())

    def named(self) -> bytes:
        good = ["zero", "one", f"new {self.rng.randrange(5)}"]
        name, file = (self.rng.choice(self.rng.choice((ODD, good))) for _ in range(2))
        return self.upload(name, self.picture(), file.replace('"', ""))

    def forms(self) -> bytes:
        """Of another kind, damaged, cut short, in many parts, and larger than the limits allow."""
        rng, good = self.rng, part("images", self.picture(), "a.png")
        whole, many = form(good), range(rng.randrange(300))
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 30)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        other = rng.choice(["application/x-www-form-urlencoded", "", "multipart/mixed", "multipart/form-data"])
        charset = rng.choice(["unicode_escape", "utf-7", "base64", "idna", "x", "undefined"])
        coded = {"Content-Type": f"multipart/form-data; charset={charset}; boundary={BOUNDARY}"}
        huge = form(part("images", bytes(rng.choice((70_000, 400_000))), "a.png"))
        chunks = 2 * (f"{len(huge):x}\r\n".encode() + huge + b"\r\n") + b"0\r\n\r\n"
        kinds: list[tuple[bytes, dict[str, str], int | None]] = [
            (whole, {"Content-Type": other}, -1),
            (whole, form_type(rng.choice(["", '"', "x" * 300, "\xff", BOUNDARY[:-1]])), -1),
            (form(*[part(f"f{i}", b"x", f"{i}") for i in many]), form_type(), -1),
            (form(good.replace(b"Content-Disposition", b"X-" + b"y" * 20_000)), form_type(), -1),
            (form(good.replace(b"form-data; ", b""), good, part("class", b"\xff\xfe")), form_type(), -1),
            (form(part("name", b"\\ud800 x"), part("images", b"x", "\\ud800.png")), coded, -1),
            (bytes(damaged), form_type(), -1),
            (whole[: rng.randrange(len(whole))], form_type(), rng.choice((-1, len(whole)))),
            (b"x" * 1000, form_type(), 10**12),
            (huge, form_type(), -1),
            (chunks, form_type(), None),
        ]
        body, headers, length = rng.choice(kinds)
        return request(rng.choice(FORMS), body, headers, length=length)

    def bombs(self) -> bytes:
        def chunk(kind: bytes, data: bytes) -> bytes:
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        side = self.rng.choice([60_000, 2**31 - 1])
        good = png(np.zeros((8, 8, 3), np.uint8))
        kinds = [
            good[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + good[33:],
            *(good[:33] + chunk(kind, b"a\0\0" + ROWS) + good[33:] for kind in (b"IDAT", b"zTXt", b"iCCP")),
            b"GIF89a\xff\xff\xff\xff\x80\0\0" + bytes(6) + b",\0\0\0\0\xff\xff\xff\xff\0\2\2D\1\0;",
            b"P6 99999999 99999999 255\n",
            b"BM" + struct.pack("<IHHIIiiHHIIiiII", 58, 0, 0, 54, 40, 2**30, -(2**30), 1, 24, 0, 4, 0, 0, 0, 0),
            b"II*\0\x08\0\0\0" + struct.pack("<HHHIIHHII", 2, 256, 4, 1, 2**31, 257, 4, 1, 2**31),
            b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"\0\0\0\x1cftypavif" + self.rng.randbytes(60),
        ]  # fmt: skip
        return self.upload(self.rng.choice(["zero", "bomb"]), self.rng.choice(kinds), "bomb.png")


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


def send(address: str, raw: bytes, *, slow: bool = False) -> str:
    """The status, or how the connection ended."""
    with connect(address) as one:
        try:
            one.sendall(raw)
            if not slow and not select.select([one], [], [], ENOUGH)[0]:
                one.shutdown(socket.SHUT_WR)  # the server waits for more: there is no more
            said = everything(one)
        except TimeoutError:
            raise  # the server hangs
        except OSError:
            return "closed"  # it hung up while we spoke
    return said.split(b" ", 2)[1].decode("latin-1") if said.startswith(b"HTTP/1.1 ") else "closed"


def by_hand(address: str, n: int, number: int) -> Counter[str]:
    """Forms, which no schema describes; odd paths, heads and values come from the schema."""
    heard: Counter[str] = Counter()
    slow, hostile = slow_ones(), Hostile(random.Random(number))
    with ThreadPoolExecutor(len(slow) + 4, thread_name_prefix="client") as clients:
        late = [clients.submit(send, address, each, slow=True) for each in slow]
        for start in range(len(slow), n, 100):
            some = [next(hostile) for _ in range(min(100, n - start))]
            for raw, status in zip(some, clients.map(lambda each: send(address, each), some), strict=True):
                assert not status.startswith("5"), (status, raw[:3000])
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
        heard = by_hand(address, 80, 8)
    assert heard.keys() >= {"200", "400", "404", "413", "422", "408"}


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
