"""From a file to a listening server, and to its orderly end."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI

from glocal.recognizer.brain import load_brain
from glocal.serve.app import create_app
from glocal.serve.patience import Impatient
from glocal.serve.settings import LOOPBACK, Settings
from glocal.serve.workspace import Workspace
from glocal_runtime.errors import RecipeError

BACKLOG = 512  # connections that wait to be taken


def run(
    file: Path,
    *,
    host: str,
    port: int,
    token: str | None,
    model: str,
    queue: int,
    workers: int,
    device: str,
    ready: Callable[[str], None],
) -> None:
    """Until a signal comes; requests that were accepted by then are finished."""
    check_host(host, token)
    if not file.exists():
        load_brain(model)  # a misspelt model is told of now, not at the first class
    listening = listen(host, port)
    with listening:
        workspace = Workspace(file, model=model, device=device, workers=workers)
        app = create_app(workspace, Settings(token=token, queue=queue, workers=workers))
        ready(address(listening, host, token))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn passes it on when all is finished
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config_of(app)).run(sockets=[listening])


def config_of(app: FastAPI) -> uvicorn.Config:
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of every form that is refused
    return uvicorn.Config(
        app,
        http=Impatient,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
    )


def check_host(host: str, token: str | None) -> None:
    if token is not None and len(token) < 8:
        raise RecipeError("a token must have at least 8 characters; `openssl rand -hex 16` makes a good one")
    if token is None and not is_loopback(host):
        raise RecipeError(f"{host} can be reached by others: give a --token, or listen on 127.0.0.1")


def is_loopback(host: str) -> bool:
    try:
        return host in LOOPBACK or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Before anything is loaded: a port that is taken is told of at once."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
    except OSError as error:
        raise RecipeError(f"cannot listen on {host}: {error.strerror or error}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise RecipeError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --port, 0 takes a free one"
        ) from error
    return listening


def address(listening: socket.socket, host: str, token: str | None) -> str:
    port = listening.getsockname()[1]
    named = f"[{host}]" if ":" in host else host
    return f"http://{named}:{port}/" + ("" if token is None else f"?token={quote(token)}")
