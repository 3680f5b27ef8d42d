"""Limits that uvicorn lacks: seconds for a head, seconds in which a client must read, number of connections."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

BACKLOG = 128  # connections that wait to be taken; so many are taken at once
MOST = 8192  # descriptors that the server asks the system for
SPARE = 128  # descriptors for files, processes and what else the server opens


class Connection(H11Protocol):
    head_seconds = 20.0  # until the head of a request is there
    read_seconds = 60.0  # in which a client must take what was sent to it
    _head: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch_head()
        if len(self.connections) > most_connections():
            silent = [each for each in self.connections if isinstance(each, Connection) and each._head is not None]
            oldest = min(silent, key=lambda each: each._head.when())  # type: ignore[union-attr]  # perhaps itself
            oldest._stop_watching()
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.resume_writing()
        self._stop_watching()
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_watching()
        elif self._head is None:
            self._head = self.loop.call_later(self.head_seconds, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None


def most_connections() -> int:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(8, (MOST if allowed == resource.RLIM_INFINITY else allowed) - BACKLOG - SPARE)
