"""The web application of one workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from glocal import __version__
from glocal.serve import ask, decide, export, problems, review, site, teach
from glocal.serve.batcher import Batcher
from glocal.serve.guard import Guard
from glocal.serve.metrics import Measured
from glocal.serve.server import Server
from glocal.serve.settings import Settings
from glocal.serve.workspace import Workspace


def create_app(workspace: Workspace, settings: Settings) -> FastAPI:
    """It owns the workspace: when the app shuts down, what was accepted is finished and the workspace closed."""
    batcher = Batcher(queue=settings.queue, batch=settings.batch, workers=settings.workers)
    server = Server(workspace, settings, batcher)

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
    )
    app.state.server = server
    problems.install(app)
    for part in (ask, teach, decide, review, export, site):
        app.include_router(part.routes(server))
    app.add_middleware(Guard, settings=settings)
    app.add_middleware(Measured, metrics=server.metrics)  # the last one added is the outermost
    return app
