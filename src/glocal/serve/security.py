"""Checks of every request before a route sees it: size, token, host and origin; headers of every answer.

Plain ASGI wrappers, so that bodies are counted while they arrive and not after.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glocal.common.errors import RecipeError
from glocal.serve.problems import Problem, busy, problem_response, stopping

COOKIE = "glocal"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
READ_ONLY = ("GET", "HEAD", "OPTIONS")
WITHOUT_TOKEN = ("/health",)  # for monitoring
WITHOUT_HEADER = ("/predict", "/check")  # change no class: curl may send them as they are
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Limits:
    file_bytes: int = 32 << 20  # of one photo
    request_bytes: int = 128 << 20
    waiting_bytes: int = 512 << 20  # of all uploads that are being received or decoded
    json_bytes: int = 64 << 10  # of a body that is no upload
    pixels: int = 64_000_000  # of one photo; a JPEG of more is decoded at reduced size
    images: int = 64  # of one request
    upload_seconds: float = 60.0  # until a body has arrived
    answer_seconds: float = 60.0  # until a photo is answered
    changes: int = 32  # that wait for their turn


@dataclass(frozen=True)
class Settings:
    token: str | None = None  # who has it may ask; without one everybody who reaches the port may
    queue: int = 256  # photos that wait or are being answered; beyond that the answer is 429
    limits: Limits = field(default_factory=Limits)

    @property
    def images(self) -> int:
        """Photos of one request: more than the queue holds would never be accepted."""
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


class Security:
    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._waiting = WaitingBytes(settings.limits.waiting_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = LimitedBody(receive, Headers(scope=scope), self._settings.limits, self._waiting)

        answering = False

        async def safe_send(message: Message) -> None:
            nonlocal answering
            answering = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                headers.setdefault("cache-control", "no-store")
                if not body.complete:
                    headers["connection"] = "close"  # nobody reads the rest of a body that was refused
            await send(message)

        try:
            response = self._check(scope)
        except Problem as problem:
            response = problem_response(problem)
        if response is not None:
            await response(scope, receive, safe_send)
            return
        try:
            await self._app(scope, body.receive, safe_send)
        except asyncio.CancelledError:  # uvicorn drops what is open when its end takes too long
            if answering:
                raise
            await problem_response(stopping())(scope, receive, safe_send)
        finally:
            body.release()

    def _check(self, scope: Scope) -> Response | None:
        """A problem, a response that is given instead of the route's, or None."""
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        token = self._settings.token
        by_header = False
        if token is None:
            _check_host(headers)
        elif path == "/" and method == "GET" and _same(Request(scope).query_params.get("token", ""), token):
            return _token_to_cookie(scope, token)
        elif path not in WITHOUT_TOKEN:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            by_header = scheme.lower() == "bearer" and (
                _same(given.strip(), token) or _same(_utf8(given.strip()), token)
            )
            if not by_header and not _same(Request(scope).cookies.get(COOKIE, ""), cookie_of(token)):
                raise Problem(
                    401,
                    "token",
                    "send `Authorization: Bearer TOKEN`, or open the page once with ?token=TOKEN",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        if method not in READ_ONLY and not by_header:
            _check_origin(headers, path)
        return None


def cookie_of(token: str) -> str:
    """What the page's cookie holds: it proves the token and is not the token."""
    return hmac.new(token.encode(), b"the page of glocal", hashlib.sha256).hexdigest()


def check_exposure(host: str, token: str | None) -> None:
    """Refuse to listen where others can reach the server without a token."""
    if token is not None and len(token) < 8:
        raise RecipeError(
            "a token must have at least 8 characters; `openssl rand -hex 16` makes a good one", code="short-token"
        )
    if token is not None and (not token.isprintable() or " " in token):
        raise RecipeError(
            "a token must have no blanks, line ends or other letters that cannot be printed: no client could send it",
            code="unusable-token",
        )
    if token is None and not is_loopback(host):
        raise RecipeError(
            f"{host} can be reached by others: give a --token, or listen on 127.0.0.1", code="token-needed"
        )


def is_loopback(host: str) -> bool:
    try:
        return host in LOOPBACK or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _same(one: str, other: str) -> bool:
    """In a time that tells nothing."""
    return hmac.compare_digest(one.encode(errors="replace"), other.encode(errors="replace"))


def _utf8(text: str) -> str:
    """Headers are bytes, which are read as Latin-1; most clients send letters beyond ASCII as UTF-8."""
    return text.encode("latin-1", "replace").decode("utf-8", "replace")


def _check_host(headers: Headers) -> None:
    """Without a token only this machine may ask, and a foreign page must not pose as it (DNS rebinding)."""
    host = re.sub(r":\d+$", "", headers.get("host", "")).strip("[]").lower()
    if host not in LOOPBACK:
        raise Problem(403, "origin", f"this server answers to {' and '.join(LOOPBACK)} only; give it a --token")


def _check_origin(headers: Headers, path: str) -> None:
    """A change must come from our own page or from a program, not from a foreign page in the same browser."""
    origin = headers.get("origin")
    if origin is not None and _host_of(origin) != headers.get("host", "").lower():
        raise Problem(403, "origin", "another page must not send this")
    if path not in WITHOUT_HEADER and "x-glocal" not in headers:
        raise Problem(403, "origin", "send the header `X-Glocal: 1` with every change: a foreign page cannot")


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _token_to_cookie(scope: Scope, token: str) -> Response:
    """Trade the token in the address for a cookie, so that it stays in no history and no log."""
    response = RedirectResponse("./", 303)
    secure = scope.get("scheme") == "https" or Headers(scope=scope).get("x-forwarded-proto") == "https"
    response.set_cookie(COOKIE, cookie_of(token), httponly=True, samesite="strict", secure=secure, path="/")
    return response
