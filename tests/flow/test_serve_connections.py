"""Clients that come in crowds, do not speak, or do not listen: everybody else is answered, and the server can end."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn

from glocal.serve import connections
from glocal.serve.connections import BACKLOG, SPARE, Connection, OncePerMinute, most_connections
from serving import client, connect, everything, listening, place, tiny_file
from waiting import PATIENCE, wait_for, wait_until_closed

BODY = b'{"value": 1.0}'
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
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
    monkeypatch.setattr(Connection, "write_seconds", 0.3)
    with listening(tiny_file(tmp_path)) as address, deaf(address, 60) as one:
        with pytest.raises(OSError, match=r"reset|Broken"):
            keep_asking(one)
        assert httpx.get(f"{address}/health", timeout=PATIENCE).status_code == 200


def test_who_does_not_read_holds_up_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the limit the block would never end; how long it takes is for the machine to say."""
    monkeypatch.setattr(Connection, "write_seconds", 0.5)
    waited = counted(monkeypatch, "pause_writing")
    with ExitStack() as stack, listening(tiny_file(tmp_path)) as address:
        stack.enter_context(deaf(address, 60))
        wait_for(lambda: waited)


def test_who_reads_slowly_but_reads_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "write_seconds", 1.0)
    monkeypatch.setattr(Connection, "least_bytes", 1)
    looks = counted(monkeypatch, "_look_again")
    with listening(tiny_file(tmp_path)) as address:
        whole = 4 * len(httpx.get(f"{address}/openapi.json", timeout=PATIENCE).content)
        with deaf(address, 4) as one:
            heard = 0
            while heard < whole:
                more = one.recv(1 << 18)
                assert more, f"closed after {heard} of {whole} bytes"
                heard += len(more)
                if not looks:  # until the server has looked once, and gone on
                    time.sleep(0.1)


def test_who_was_let_in_before_the_end_may_still_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "head_seconds", PATIENCE)
    monkeypatch.setattr(Connection, "last_seconds", PATIENCE)
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        with listening(tiny_file(tmp_path)) as address:
            one = stack.enter_context(connect(address))
            assert httpx.get(f"{address}/health", timeout=PATIENCE).status_code == 200  # so the first one is in

            def late() -> bytes:
                wait_until_closed(place(address))  # then the end has begun
                one.sendall(HEALTH)
                return everything(one)

            said = pool.submit(late)
        assert said.result().startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("turns", range(5))
def test_who_stands_in_the_queue_at_the_end_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """The system lets them in, the loop takes them one turn later and makes connections of them in the next two."""
    crowd: list[socket.socket] = []

    async def last_moment(server: uvicorn.Server) -> None:
        while not server.should_exit:
            await asyncio.sleep(0.01)
        for _ in range(30):
            one = socket.create_connection(server.servers[0].sockets[0].getsockname(), timeout=PATIENCE)
            one.sendall(HEALTH)
            crowd.append(one)
        for _ in range(turns):
            await asyncio.sleep(0)

    monkeypatch.setattr(uvicorn.Server, "main_loop", last_moment)
    with ExitStack() as stack:
        stack.callback(lambda: [each.close() for each in crowd])
        with listening(tiny_file(tmp_path)):
            pass
        said = [everything(each) for each in crowd]
    assert [each[:12] for each in said] == [b"HTTP/1.1 200"] * 30


def test_who_asks_nothing_at_the_end_is_sent_away_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "last_seconds", 0.1)
    monkeypatch.setattr(Connection, "head_seconds", PATIENCE)
    monkeypatch.setattr(Connection, "timeout_keep_alive", property(lambda _: PATIENCE, lambda *_: None), raising=False)
    with ExitStack() as stack:
        with listening(tiny_file(tmp_path)) as address:
            silent, begun, used = (stack.enter_context(connect(address)) for _ in range(3))
            begun.sendall(ASK[:20])
            used.sendall(HEALTH)
            first = b""
            while not first.endswith(b"}"):
                first += used.recv(65536)
            assert first.startswith(b"HTTP/1.1 200")
            assert b"connection: close" not in first.lower()
            assert httpx.get(f"{address}/health", timeout=PATIENCE).status_code == 200  # so the others are in
        for one in (silent, begun, used):
            said = everything(one)
            assert said.startswith(b"HTTP/1.1 503")
            assert b'"code":"ending"' in said


def test_an_answer_at_the_end_says_that_it_is_the_last(tmp_path: Path) -> None:
    """Otherwise a client takes the same connection for its next question."""
    with ExitStack() as stack:
        with listening(tiny_file(tmp_path)) as address:
            one = stack.enter_context(connect(address))
            head = f"PUT /threshold HTTP/1.1\r\nHost: localhost\r\nX-Glocal: 1\r\nContent-Length: {len(BODY)}\r\n"
            one.sendall(f"{head}Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n".encode())
            assert one.recv(65536).startswith(b"HTTP/1.1 100")  # the route waits for the body
            late = stack.enter_context(ThreadPoolExecutor(1)).submit(finish, one, place(address))
        said = late.result()
        assert said.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in said.lower()
        assert said.count(b"HTTP/1.1") == 1


def finish(one: socket.socket, where: tuple[str, int]) -> bytes:
    """The rest of a request, after the end has begun."""
    wait_until_closed(where)
    one.sendall(BODY)
    return everything(one)


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Connection]:
    """Every call of that method, from now on."""
    calls: list[Connection] = []
    method = getattr(Connection, name)
    monkeypatch.setattr(Connection, name, lambda one: calls.append(one) or method(one))
    return calls


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


def test_connections_are_fewer_than_descriptors() -> None:
    for allowed, most in ((1024, 1024 - BACKLOG - SPARE), (10, 8), (10**6, 1000), (resource.RLIM_INFINITY, 1000)):
        with descriptors(allowed):
            assert most_connections() == most


def test_a_line_of_each_kind_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(connections.time, "monotonic", lambda: now)
    once = OncePerMinute()

    def told(text: str, wrong: type[Exception] | None = None) -> bool:
        about = None if wrong is None else (wrong, wrong(), None)
        return once.filter(logging.LogRecord("a", logging.ERROR, "b", 1, text, (), about))

    assert [told("full"), told("full"), told("other"), told("full", OSError), told("full")] == [1, 0, 1, 1, 0]
    now += 61
    assert [told("full"), told("full")] == [1, 0]
