"""Connections of the server: how many there may be, how long one may take to ask and to listen, their end; and its log.

uvicorn itself waits for ever for a request's head and for a client that does not read its answer, and at its end drops
who is connected and not yet answered.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from glocal.common.words import printable
from glocal.serve.problems import Problem, problem_response

BACKLOG = 128  # connections that wait to be taken; so many are taken at once
SPARE = 128  # descriptors for files, threads and what else the process opens
MOST = 1000  # connections, where the system allows as many
EVERY = 60.0  # seconds between two lines of one kind in the log
log = logging.getLogger("glocal.serve")


def _refusal(kind: str, detail: str) -> bytes:
    """To somebody who has not asked anything yet."""
    headers = {"Retry-After": "5", "Connection": "close"}
    response = problem_response(Problem(503, kind, detail, headers=headers))
    lines = [b"HTTP/1.1 503 Service Unavailable", *(b": ".join(each) for each in response.raw_headers), b"", b""]
    return b"\r\n".join(lines) + bytes(response.body)


FULL = _refusal("busy", "too many connections at once; try again in 5 s")
ENDING = _refusal("ending", "the server ends; ask again when it is back")


class Connection(H11Protocol):
    head_seconds = 20.0  # until the head of a request is there
    write_seconds = 30.0  # in which a client that is sent something must take ...
    least_bytes = 32 << 10  # ... so much of it, or the rest
    last_seconds = 2.0  # after the end was called for, in which somebody who was let in may still ask
    _ending = _sent_away = False
    _head: asyncio.TimerHandle | None = None
    _write: asyncio.TimerHandle | None = None
    _unread = 0  # bytes that the client has not taken when it was last looked at

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # to be told of every byte that is not taken
        self._began = self.loop.time()
        self._watch_head()
        if len(self.connections) > most_connections():
            self._make_room()

    def data_received(self, data: bytes) -> None:
        if not self._sent_away:
            super().data_received(data)
            self._watch_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._ending and self.cycle.response_complete:
            self._send_away()  # the head of the answer was out before it could say that it is the last

    def shutdown(self) -> None:
        """Whoever is connected may be asking at this moment: closing is no answer."""
        self._ending = True
        if self.cycle is None:
            self._stop_listening()
            self._head = self.loop.call_later(self.last_seconds, self._give_up)
        elif self.cycle.response_complete:
            self._send_away()
        else:
            self.cycle.default_headers = [*self.cycle.default_headers, CLOSE_HEADER]

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        self._write = self.loop.call_later(self.write_seconds, self._look_again)

    def resume_writing(self) -> None:
        self._stop_waiting()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_listening()
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _is_silent(self) -> bool:
        """Nothing was asked, or not all of a head."""
        return self._head is not None

    def _watch_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_listening()
        elif self._head is None:
            self._head = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop_listening(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _stop_waiting(self) -> None:
        if self._write is not None:
            self._write.cancel()
            self._write = None

    def _give_up(self) -> None:
        self._head = None
        if self.conn.their_state is h11.IDLE:
            if self._ending:
                self._send_away()
            else:
                self.transport.close()

    def _send_away(self) -> None:
        """What still comes is read and dropped: closing at once would take the refusal back (a reset)."""
        if self.transport.is_closing():
            return
        self._sent_away = True
        self._unset_keepalive_if_required()
        self.transport.write(ENDING)
        self.transport.write_eof()
        self._head = self.loop.call_later(self.last_seconds, self.transport.close)

    def _look_again(self) -> None:
        """Whoever takes less than that is not waited for: one such client would hold up the end of the server."""
        left = self.transport.get_write_buffer_size()
        if self._unread - left < self.least_bytes:
            self.transport.abort()
        else:
            self._unread = left
            self._write = self.loop.call_later(self.write_seconds, self._look_again)

    def _make_room(self) -> None:
        """The one that has been silent for longest goes; where everybody is busy, the new one is sent away."""
        log.warning("%d connections at once: silent ones are closed", len(self.connections))
        silent = [each for each in self.connections if isinstance(each, Connection) and each._is_silent]
        oldest = min(silent, key=lambda each: each._began)
        if oldest is self:
            self.transport.write(FULL)
            self.transport.close()
        else:
            oldest._stop_listening()  # it is gone in a moment: the next one that comes chooses another
            self.connections.discard(oldest)
            oldest.transport.abort()


class Listener(uvicorn.Server):
    """At its end it takes in everybody who has reached the port.

    What remains: a client whose connection the system completes between the last look into its queue and the end of
    the queue, a few microseconds later.  It is reset before anything it sent was read.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE_HEADER]
        queues = [each.dup() for server in self.servers for each in server.sockets]
        for server in self.servers:
            for each in server.sockets:
                loop.remove_reader(each)
        await asyncio.sleep(0.1)  # those whom the loop has just taken become connections, while the server is open
        taken: list[socket.socket] = []
        for queue in queues:
            taken += _waiting(queue)
            queue.close()
        for server in self.servers:
            server.close()
        connection = partial(Connection, self.config, self.server_state, self.lifespan.state)
        for one in taken:
            await loop.connect_accepted_socket(connection, one)
        await super().shutdown(sockets)


def _waiting(queue: socket.socket) -> Iterator[socket.socket]:
    while True:
        try:
            yield queue.accept()[0]
        except ConnectionAbortedError:
            continue
        except OSError:  # nobody is left, or no descriptor
            return


def most_connections() -> int:
    """With room for those that are taken before they can be refused."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(8, min(MOST, allowed - BACKLOG - SPARE)) if allowed != resource.RLIM_INFINITY else MOST


class OncePerMinute(logging.Filter):
    """Of each kind one line a minute: nobody fills the disk with what goes wrong a thousand times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[tuple[Any, ...], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        wrong = record.exc_info[0] if record.exc_info else None
        kind = (record.levelno, str(record.msg)[:60], wrong)
        now = time.monotonic()
        if now - self._told.get(kind, -EVERY) < EVERY:
            return False
        self._told[kind] = now
        return True


class Plain(logging.Filter):
    """One line that moves no cursor: a file may say of itself what it likes."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = printable(" ".join(record.getMessage().splitlines())), ()
        if record.exc_info:
            record.exc_text = printable(logging.Formatter().formatException(record.exc_info))
        return True


def quiet_log() -> None:
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of every form that is refused
    for name in ("asyncio", "uvicorn.error", "glocal.serve"):
        logger = logging.getLogger(name)
        if not any(isinstance(each, OncePerMinute) for each in logger.filters):
            logger.addFilter(OncePerMinute())
            logger.addFilter(Plain())
