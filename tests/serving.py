"""A server for tests: a small recognizer of digits, asked in this process or through a real socket."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import uvicorn
from PIL import Image

from converted import model_file
from glocal.recognizer import Recognizer
from glocal.serve.app import config_of, create_app
from glocal.serve.security import Settings
from glocal.serve.workspace import Workspace
from photos import some
from waiting import PATIENCE, wait_for

PAGE = {"X-Glocal": "1"}  # what the page sends with every change
HERE = "http://127.0.0.1"


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def uploads(word: str, start: int, stop: int) -> list[tuple[str, tuple[str, bytes, str]]]:
    """Digits as the parts of a form."""
    pictures = zip(range(start, stop), some(word, start, stop), strict=True)
    return [("images", (f"{word}-{i}.png", png(pixels), "image/png")) for i, pixels in pictures]


def tiny_file(folder: Path, *, shots: int = 3, words: tuple[str, ...] = ("zero", "one")) -> Path:
    """A ``.glocal`` file whose model takes a millisecond."""
    file = folder / "digits.glocal"
    photos = {word: some(word, 0, shots) for word in words}
    Recognizer.enroll(photos, model=model_file("tiny:protonet"), device="cpu").save(file)
    return file


@contextmanager
def listening(
    file: Path, *, model: Path | str | None = None, settings: Settings | None = None, recent: Path | None = None
) -> Iterator[str]:
    """The address of a server that starts and ends with the block: uvicorn with a real socket, in a thread."""
    settings = settings or Settings()
    seconds = settings.limits.answer_seconds
    workspace = Workspace(file, model=model or model_file(), device="cpu", recent=recent, seconds=seconds)
    app = create_app(workspace, settings)
    config = config_of(app)
    config.port = 0
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started or not thread.is_alive(), every=0.005)
        assert server.started
        yield f"{HERE}:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def client(
    file: Path, *, model: Path | str | None = None, settings: Settings | None = None, recent: Path | None = None
) -> Iterator[httpx.Client]:
    """The same as the page asks it."""
    with (
        listening(file, model=model, settings=settings, recent=recent) as address,
        httpx.Client(base_url=address, headers=PAGE, timeout=PATIENCE) as asking,
    ):
        yield asking


def place(address: str) -> tuple[str, int]:
    where = urlsplit(address)
    return str(where.hostname), int(where.port or 0)


def connect(address: str) -> socket.socket:
    return socket.create_connection(place(address), timeout=PATIENCE)


def everything(one: socket.socket) -> bytes:
    """All that is said until the end."""
    return b"".join(iter(lambda: one.recv(65536), b""))


def detail(response: httpx.Response, status: int, kind: str) -> str:
    """The sentence of a problem, which must be one of this status and kind."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["type"], body["status"]) == (f"urn:glocal:{kind}", status)
    assert body["title"]
    assert (body["code"] == kind) == (kind != "rule")  # a rule's code is that of the error
    return str(body["detail"])


def ok(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()


def teach(asking: httpx.Client, words: tuple[str, ...], shots: int) -> None:
    for word in words:
        ok(asking.post("/classes", data={"name": word}, files=uploads(word, 0, shots)))


def rename(workspace: Workspace, old: str, new: str) -> None:
    workspace.change(f"class {old} renamed to {new}", lambda recognizer: recognizer.rename_class(old, new))


def taught_names(asking: httpx.Client) -> list[str]:
    return [each["name"] for each in ok(asking.get("/classes"))]
