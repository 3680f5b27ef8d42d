"""How much a server takes: settings, the size and duration of a request's body, the duration of its head."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import h11
from starlette.datastructures import Headers
from starlette.types import Message, Receive
from uvicorn.protocols.http.h11_impl import H11Protocol

from glocal.serve.problems import Problem, busy

HEAD_SECONDS = 20.0


@dataclass(frozen=True)
class Limits:
    file_bytes: int = 32 << 20  # of one picture
    request_bytes: int = 128 << 20
    waiting_bytes: int = 512 << 20  # of all uploads that are being received or decoded
    json_bytes: int = 64 << 10  # of a body that is no upload
    pixels: int = 64_000_000  # of one picture; a phone takes 50 million
    images: int = 64  # of one request
    upload_seconds: float = 60.0  # until a body has arrived
    answer_seconds: float = 60.0  # until a picture is answered
    changes: int = 32  # that wait for their turn

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"the limit {name} must be positive, got {value}")


@dataclass(frozen=True)
class Settings:
    token: str | None = None  # who has it may ask; without one everybody who reaches the port may
    queue: int = 256  # pictures that wait or are being answered; beyond that the answer is 429
    limits: Limits = field(default_factory=Limits)

    @property
    def images(self) -> int:
        """Pictures of one request: more than the queue holds would never be accepted."""
        return min(self.limits.images, self.queue)


@dataclass
class WaitingBytes:
    """Of all uploads together."""

    most: int
    now: int = 0

    def add(self, n: int) -> None:
        if self.now + n > self.most:
            raise busy("too many uploads at once", 5)
        self.now += n


class LimitedBody:
    """A request's body, counted while it arrives: not too much of it, not too slowly."""

    def __init__(self, receive: Receive, headers: Headers, limits: Limits, waiting: WaitingBytes) -> None:
        self._receive, self._waiting, self._seconds = receive, waiting, limits.upload_seconds
        upload = headers.get("content-type", "").lower().startswith("multipart/")
        self._most = limits.request_bytes if upload else limits.json_bytes
        self._announced = headers.get("content-length", "")
        self._deadline: float | None = None
        self._held = 0
        self.complete = self._announced in ("", "0") and "transfer-encoding" not in headers

    async def receive(self) -> Message:
        if self.complete:
            return await self._receive()
        if self._deadline is None:
            if self._announced.isdigit() and int(self._announced[:20]) > self._most:
                raise self._too_large()
            self._deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise Problem(408, "too-slow", f"a body must arrive within {self._seconds:g} s") from None
        if message["type"] == "http.request":
            n = len(message.get("body", b""))
            if self._held + n > self._most:
                raise self._too_large()
            self._waiting.add(n)
            self._held += n
            self.complete = not message.get("more_body", False)
        return message

    def release(self) -> None:
        self._waiting.now -= self._held
        self._held = 0

    def _too_large(self) -> Problem:
        return Problem(413, "too-large", f"a body like this may have {self._most:,} bytes")


class HeadTimeout(H11Protocol):
    """Closes connections whose request head is not there in time: uvicorn itself waits for it for ever."""

    head_seconds = HEAD_SECONDS
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.conn.their_state is h11.IDLE:
            self.transport.close()
