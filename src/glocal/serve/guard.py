"""What every request passes before a route sees it: who asks, from where, how much and how slowly.

A plain ASGI wrapper, so that bodies are counted while they arrive and not after.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glocal.serve.problems import Problem, busy, problem_response
from glocal.serve.settings import LOOPBACK, Settings

COOKIE = "glocal"
HARMLESS = ("GET", "HEAD", "OPTIONS")
OPEN_TO_ALL = ("/health",)  # for whoever watches over the service
FROM_SCRIPTS = ("/predict",)  # changes no class: curl may send it as it is
SAFE = {
    "content-security-policy": "default-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
}


class Guard:
    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._waiting = 0  # bytes of all uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(receive, self, Headers(scope=scope), self._settings)
        safe_send = _with_safe_headers(send, body)
        try:
            response = self._check(scope)
        except Problem as problem:
            response = problem_response(problem)
        if response is not None:
            await response(scope, receive, safe_send)
            return
        try:
            await self._app(scope, body.receive, safe_send)
        finally:
            self._waiting -= body.held

    def hold(self, n: int) -> None:
        if self._waiting + n > self._settings.limits.waiting_bytes:
            raise busy("too many uploads at once", 5)
        self._waiting += n

    def _check(self, scope: Scope) -> Response | None:
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        token = self._settings.token
        if token is None:
            _check_host(headers)
        elif path == "/" and method == "GET" and (given := parse_qs(scope["query_string"].decode("latin-1"))):
            offered = given.get("token", [""])[0]
            if same(offered, token):
                return _welcome(scope, token)
        by_header = False
        if token is not None and path not in OPEN_TO_ALL:
            by_header = _bears(headers, token)
            if not by_header and not same(Request(scope).cookies.get(COOKIE, ""), cookie_of(token)):
                raise Problem(
                    401,
                    "token",
                    "send `Authorization: Bearer TOKEN`, or open the page once with ?token=TOKEN",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        if method not in HARMLESS:
            _check_origin(headers, path, trusted=by_header)
        return None


def same(one: str, other: str) -> bool:
    """In a time that tells nothing."""
    return hmac.compare_digest(one.encode(errors="replace"), other.encode(errors="replace"))


def cookie_of(token: str) -> str:
    """What the page's cookie holds: it proves the token and is not the token."""
    return hmac.new(token.encode(), b"the page of glocal", hashlib.sha256).hexdigest()


def _bears(headers: Headers, token: str) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and same(given.strip(), token)


def _check_host(headers: Headers) -> None:
    """Without a token only this machine may ask, and a foreign page must not pose as it (DNS rebinding)."""
    host = re.sub(r":\d+$", "", headers.get("host", "")).strip("[]").lower()
    if host not in LOOPBACK:
        raise Problem(403, "origin", f"this server answers to {' and '.join(LOOPBACK)} only; give it a --token")


def _check_origin(headers: Headers, path: str, *, trusted: bool) -> None:
    """A change must come from our own page or from a program, not from a foreign page in the same browser."""
    if trusted:
        return
    origin = headers.get("origin")
    if origin is not None and urlsplit_host(origin) != headers.get("host", "").lower():
        raise Problem(403, "origin", "another page must not send this")
    if path not in FROM_SCRIPTS and "x-glocal" not in headers:
        raise Problem(403, "origin", "send the header `X-Glocal: 1` with every change: a foreign page cannot")


def urlsplit_host(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _welcome(scope: Scope, token: str) -> Response:
    """Trade the token in the address for a cookie, so that it stays in no history and no log."""
    response = RedirectResponse("./", 303)
    secure = scope.get("scheme") == "https" or Headers(scope=scope).get("x-forwarded-proto") == "https"
    response.set_cookie(COOKIE, cookie_of(token), httponly=True, samesite="strict", secure=secure, path="/")
    return response


def _with_safe_headers(send: Send, body: _Body) -> Send:
    async def safe(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SAFE.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
            if not body.complete:
                headers["connection"] = "close"  # nobody listens to the rest of a body that was refused
        await send(message)

    return safe


class _Body:
    """A request's body as it arrives: not too much of it, not too slowly."""

    def __init__(self, receive: Receive, guard: Guard, headers: Headers, settings: Settings) -> None:
        self._receive, self._guard = receive, guard
        upload = headers.get("content-type", "").lower().startswith("multipart/")
        self._most = settings.limits.request_bytes if upload else settings.limits.json_bytes
        self._announced = headers.get("content-length", "")
        self._seconds = settings.limits.upload_seconds
        self._deadline: float | None = None
        self.complete = self._announced in ("", "0") and "transfer-encoding" not in headers
        self.held = 0

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
            if self.held + n > self._most:
                raise self._too_large()
            self._guard.hold(n)
            self.held += n
            self.complete = not message.get("more_body", False)
        return message

    def _too_large(self) -> Problem:
        return Problem(413, "too-large", f"a body like this may have {self._most:,} bytes")
