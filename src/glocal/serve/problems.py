"""Errors as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from glocal.common.errors import GlocalError

MEDIA_TYPE = "application/problem+json"
log = logging.getLogger("glocal.serve")


class Problem(HTTPException):
    """An error that becomes the answer of its route.  ``code`` is the kind unless an error brings its own."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        code: str | None = None,
        version: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, headers)
        self.kind = kind
        self.more: dict[str, Any] = {"code": code or kind} | ({} if version is None else {"version": version})


def no_classes() -> Problem:
    return Problem(409, "empty", "there is no class yet; teach it one first")


def missing(what: str) -> Problem:
    return Problem(404, "not-found", f"there is no {what}; it may be gone already, read the state again")


def busy(why: str, seconds: int) -> Problem:
    return Problem(429, "busy", f"{why}; try again in {seconds} s", headers={"Retry-After": str(seconds)})


def stopping() -> Problem:
    return Problem(503, "stopping", "the server was stopped before it had this answer; ask again when it runs")


class Json(JSONResponse):
    """ASCII alone, so that any name of a file can be written."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def problem_response(problem: Problem) -> Response:
    body = {
        "type": f"urn:glocal:{problem.kind}",
        "title": HTTPStatus(problem.status_code).phrase,
        "status": problem.status_code,
        "detail": problem.detail,
        **problem.more,
    }
    return Json(body, problem.status_code, headers=problem.headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Every error of this app leaves as a problem."""

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        if isinstance(error, Problem):
            return problem_response(error)
        kind = {404: "not-found", 405: "method"}.get(error.status_code, "invalid")
        headers = dict(error.headers) if error.headers else None
        return problem_response(Problem(error.status_code, kind, str(error.detail), headers=headers))

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return problem_response(Problem(422, "invalid", f"{where}: {first['msg']}"))

    @app.exception_handler(GlocalError)
    async def on_rule(request: Request, error: GlocalError) -> Response:
        return problem_response(Problem(422, "rule", str(error), code=error.code))

    @app.exception_handler(ClientDisconnect)
    async def on_gone(request: Request, error: ClientDisconnect) -> Response:
        return problem_response(Problem(400, "invalid", "the body ended too early"))

    @app.exception_handler(Exception)
    async def on_mistake(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem_response(Problem(500, "internal", "this should not happen; the server's log says more"))
