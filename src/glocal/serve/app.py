"""The web application of one workspace: its page, downloads and monitoring; the process that serves it."""

from __future__ import annotations

import csv
import io
import os
import re
import resource
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any
from urllib.parse import quote

import uvicorn
from fastapi import APIRouter, FastAPI
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from glocal import __version__
from glocal.bulk.results import COLUMNS, row
from glocal.common.errors import DataError, RecipeError
from glocal.serve import decoder, log, problems, schemas
from glocal.serve.connections import BACKLOG, MOST, Connection
from glocal.serve.problems import Json, missing, no_classes
from glocal.serve.routes import ROUTERS
from glocal.serve.schemas import Health, binary
from glocal.serve.security import Security, Settings, check_exposure
from glocal.serve.server import MetricsMiddleware, Server
from glocal.serve.workspace import Workspace

GRACE = 25  # seconds for the requests that were accepted when the server is to end
STOP = 30.0  # seconds after which it ends, whatever is open
PAGE = Path(__file__).parent / "page"
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
CHUNK = 1 << 18
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute
TEXTS = ("path", "label", "nearest", "reason", "warning", "error")


def create_app(workspace: Workspace, settings: Settings) -> FastAPI:
    """The app owns the workspace: it finishes what it accepted and closes the workspace when it shuts down."""
    server = Server(workspace, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        server.close()

    app = FastAPI(
        title="glocal",
        version=__version__,
        description="Teach it classes from a handful of photos; it names what it knows and calls the rest unknown.",
        openapi_url="/openapi.json",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        responses=schemas.problems(),
    )
    app.state.server = server
    problems.install(app)
    for routes in (*ROUTERS, _site):
        app.include_router(routes(server))
    app.add_middleware(Security, settings=settings)
    app.add_middleware(MetricsMiddleware, metrics=server.metrics)  # the last one added is the outermost
    return app


def _site(server: Server) -> APIRouter:
    router = APIRouter()
    workspace = server.workspace
    assets = {path.name: path for path in PAGE.iterdir() if path.suffix in TYPES}

    @router.get("/", include_in_schema=False)
    @router.get("/page/{name:path}", include_in_schema=False)
    async def page(name: str = "index.html") -> Response:
        if name not in assets:  # a list and not a folder: no name leads out of it
            raise missing(f"page {name[:80]!r}")
        kind = TYPES[assets[name].suffix]
        return Response(assets[name].read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})

    @router.get("/health", tags=["site"], response_model=Health)
    async def health() -> Response:
        now = await server.now()
        return Json(
            {
                "status": "ok",
                "version": now.version,
                "classes": len(now.classes),
                "model": Path(workspace.model).name if now.recognizer is None else now.recognizer.contents.model.name,
                "file": workspace.file.name,
                "uptime": server.uptime(),
            }
        )

    @router.get("/metrics", tags=["site"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(generate_latest(server.metrics.registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    @router.get("/export/file", tags=["export"], response_class=Response, responses=binary("application/octet-stream"))
    async def file() -> Response:
        """The ``.glocal`` file."""
        try:
            opened = await run_in_threadpool(workspace.file.open, "rb")
        except FileNotFoundError:
            raise no_classes() from None
        except OSError as error:
            raise DataError(
                f"{workspace.file.name} could not be read ({error.strerror or error}); check the file and its "
                "permissions, and try again",
                code="not-read",
            ) from error
        size = os.fstat(opened.fileno()).st_size  # of what was opened: the name may mean another file by now
        headers = {"Content-Length": str(size), **_named(workspace.file.name)}
        return StreamingResponse(_chunks(opened), media_type="application/octet-stream", headers=headers)

    @router.get("/export/results.csv", tags=["export"], response_class=Response, responses=binary("text/csv"))
    async def results() -> Response:
        """The recent photos with their answers, newest first."""
        now = await server.now()
        identity = now.enrolled().contents.identity
        table = await run_in_threadpool(lambda: _csv(row(each.answer, identity) for each in workspace.recent(now)))
        headers = _named(f"{workspace.file.stem}-answers.csv")
        return Response(table, media_type="text/csv; charset=utf-8", headers=headers)

    return router


def _named(name: str) -> dict[str, str]:
    """The name of a download, in letters that every header can hold, and as it is."""
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    return {"Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(os.fsencode(name))}"}


def _csv(rows: Iterable[dict[str, Any]]) -> str:
    """Put a mark before every text that a spreadsheet would take for a formula."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, restval="", lineterminator="\r\n")
    writer.writeheader()
    for each in rows:
        marked = {name: f"'{each[name]}" for name in TEXTS if str(each.get(name, "")).startswith(FORMULA)}
        writer.writerow(each | marked)
    return buffer.getvalue()


def _chunks(opened: IO[bytes]) -> Iterator[bytes]:
    with opened:
        while chunk := opened.read(CHUNK):
            yield chunk


def run(
    file: Path,
    *,
    host: str,
    port: int,
    model: str,
    device: str,
    workers: int,
    recent: Path | None,
    settings: Settings,
    ready: Callable[[str], None],
) -> None:
    """Serve until a signal comes, and finish the requests that were accepted by then."""
    check_exposure(host, settings.token)
    decoder.prepare()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST if most == resource.RLIM_INFINITY else min(MOST, most), most))
    with listen(host, port) as listening:
        app = create_app(
            Workspace(
                file,
                model=model,
                device=device,
                workers=workers,
                recent=recent,
                seconds=settings.limits.answer_seconds,
            ),
            settings,
        )
        ready(address(listening, host, settings.token))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn passes it on when all is finished
        with suppress(KeyboardInterrupt):
            _Uvicorn(config_of(app)).run(sockets=[listening])


class _Uvicorn(uvicorn.Server):
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """What is on the disk is whole at any moment, so open work may be dropped."""
        end = threading.Timer(STOP, os._exit, (1,))
        end.daemon = True
        end.start()
        super().handle_exit(sig, frame)


def config_of(app: FastAPI) -> uvicorn.Config:
    log.install()
    return uvicorn.Config(
        app,
        http=Connection,
        loop="asyncio",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE,
    )


def listen(host: str, port: int) -> socket.socket:
    """Take the port before anything is loaded: an error about it comes at once."""
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
