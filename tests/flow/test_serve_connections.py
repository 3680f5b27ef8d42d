"""Clients that come in crowds, do not speak, or do not listen: everybody else is answered."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from glocal.serve import app
from glocal.serve.connections import BACKLOG, SPARE, Connection
from serving import client, connect, listening, ok, place, tiny_file, uploads
from waiting import PATIENCE, wait_for

SLOW_BODY = (
    b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    b"Content-Length: 5000\r\n\r\n--b\r\n"
)
ASK = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


def deaf(address: str, times: int) -> socket.socket:
    """Asks, and never reads what is said."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect(place(address))
    one.settimeout(PATIENCE)
    one.sendall(ASK * times)
    return one


def keep_asking(one: socket.socket) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        one.sendall(ASK)
        time.sleep(0.05)


def test_who_does_not_read_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "read_seconds", 0.3)
    with listening(tiny_file(tmp_path)) as address, deaf(address, 60) as one:
        with pytest.raises(OSError, match=r"reset|Broken"):
            keep_asking(one)
        assert httpx.get(f"{address}/health", timeout=PATIENCE).status_code == 200


@contextmanager
def descriptors(n: int) -> Iterator[None]:
    """Pretend that the system allows so many: really lowering it would starve the test itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resource, "getrlimit", lambda kind: (n, n))
        yield


def test_a_crowd_of_silent_ones_keeps_nobody_out(tmp_path: Path) -> None:
    with descriptors(BACKLOG + SPARE + 20), client(tiny_file(tmp_path)) as asking, ExitStack() as stack:
        crowd = [stack.enter_context(connect(str(asking.base_url))) for _ in range(100)]
        for _ in range(5):
            assert httpx.get(f"{asking.base_url}/health", timeout=PATIENCE).status_code == 200
        gone = [_is_closed(each) for each in crowd]
        assert gone == sorted(gone, reverse=True), "the first to come are the first to go"
        assert 75 <= sum(gone) < 100


def _is_closed(one: socket.socket) -> bool:
    one.settimeout(0.01)
    try:
        return one.recv(100) in (b"",)
    except TimeoutError:
        return False
    except OSError:
        return True


def test_slow_bodies_keep_nobody_waiting(tmp_path: Path) -> None:
    with client(tiny_file(tmp_path)) as asking, ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(connect(str(asking.base_url))).sendall(SLOW_BODY)
        assert ok(asking.post("/predict", files=uploads("one", 0, 2)))["answers"][1]["ok"]


def test_a_body_that_never_ends_holds_up_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the limit the server would wait for the minute that a body may take."""
    monkeypatch.setattr(app, "GRACE", 0.5)
    with ExitStack() as stack, client(tiny_file(tmp_path)) as asking:
        one = stack.enter_context(connect(str(asking.base_url)))
        one.sendall(SLOW_BODY)
        wait_for(lambda: asking.get("/health").status_code == 200)
        began = time.monotonic()
    assert time.monotonic() - began < 30
