"""The web application of one workspace, and the process that serves it until a signal comes."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI

from glocal import __version__
from glocal.serve import problems, routes_classes, routes_page, routes_predict, routes_review, routes_threshold, schemas
from glocal.serve.limits import HeadTimeout, Settings
from glocal.serve.security import Security, check_exposure
from glocal.serve.server import Measured, Server
from glocal.serve.workspace import Workspace
from glocal_runtime.errors import RecipeError

BACKLOG = 512  # connections that wait to be taken


def create_app(workspace: Workspace, settings: Settings) -> FastAPI:
    """It owns the workspace: when the app shuts down, what was accepted is finished and the workspace closed."""
    server = Server(workspace, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        server.close()

    app = FastAPI(
        title="glocal",
        version=__version__,
        description="Teach it classes from a handful of pictures; it names what it knows and calls the rest unknown.",
        openapi_url="/openapi.json",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        responses=schemas.problems(),
    )
    app.state.server = server
    problems.install(app)
    for part in (routes_predict, routes_classes, routes_threshold, routes_review, routes_page):
        app.include_router(part.routes(server))
    app.add_middleware(Security, settings=settings)
    app.add_middleware(Measured, metrics=server.metrics)  # the last one added is the outermost
    return app


def run(
    file: Path,
    *,
    host: str,
    port: int,
    model: str,
    device: str,
    workers: int,
    settings: Settings,
    ready: Callable[[str], None],
) -> None:
    """Until a signal comes; requests that were accepted by then are finished."""
    check_exposure(host, settings.token)
    with listen(host, port) as listening:
        app = create_app(Workspace(file, model=model, device=device, workers=workers), settings)
        ready(address(listening, host, settings.token))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn passes it on when all is finished
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config_of(app)).run(sockets=[listening])


def config_of(app: FastAPI) -> uvicorn.Config:
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of every form that is refused
    return uvicorn.Config(
        app,
        http=HeadTimeout,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
    )


def listen(host: str, port: int) -> socket.socket:
    """Before anything is loaded: a port that is taken is told of at once."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
    except OSError as error:
        raise RecipeError(f"cannot listen on {host}: {error.strerror or error}", code="address") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise RecipeError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --port, 0 takes a free one",
            code="port-taken",
        ) from error
    return listening


def address(listening: socket.socket, host: str, token: str | None) -> str:
    port = listening.getsockname()[1]
    named = f"[{host}]" if ":" in host else host
    return f"http://{named}:{port}/" + ("" if token is None else f"?token={quote(token)}")
