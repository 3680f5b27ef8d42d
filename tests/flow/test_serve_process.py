"""``glocal serve`` as a process: what it prints, what it refuses, and that it finishes what it accepted."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from apart import start
from converted import model_file
from glocal.cli.main import app
from glocal.common.errors import DataError, GlocalError
from glocal.serve.workspace import Workspace
from refusal import refused
from serving import PAGE, connect, everything, place, tiny_file, uploads
from waiting import PATIENCE, wait_for


@contextmanager
def serving(
    file: Path, *words: str, ends: signal.Signals, **environment: str
) -> Iterator[tuple[ForkServerProcess, str]]:
    """The process and the address that it prints; at the end of the block that signal ends it."""
    log = file.with_suffix(".log")
    process = start("serve", file, *words, "--port", 0, "--device", "cpu", out=log, err=log, **environment)
    try:
        wait_for(lambda: not process.is_alive() or (log.exists() and "\n" in log.read_text()))
        assert "open http://" in log.read_text(), log.read_text()
        yield process, log.read_text().split("open ")[1].split()[0]
        if process.is_alive():
            os.kill(process.pid, ends)
        process.join(PATIENCE)
        assert process.exitcode == 0
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()


def wait_until_closed(place: tuple[str, int]) -> None:
    """Until nobody new is let in."""

    def is_closed() -> bool:
        try:
            socket.create_connection(place, timeout=PATIENCE).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_for(is_closed)


def test_it_finishes_what_it_accepted_and_then_ends(tmp_path: Path) -> None:
    file = tiny_file(tmp_path)
    with (
        serving(file, ends=signal.SIGTERM) as (process, where),
        httpx.Client(base_url=where, headers=PAGE, timeout=PATIENCE) as asking,
    ):
        assert asking.get("/health").json()["classes"] == 2
        asking.post("/predict", files=uploads("six", 0, 2)).raise_for_status()
        form = httpx.Request("POST", f"{where}predict", files=uploads("one", 0, 3), headers={"Connection": "close"})
        body = form.read()
        head = "".join(f"{name}: {value}\r\n" for name, value in form.headers.items())
        with connect(where) as begun:
            begun.sendall(f"POST /predict HTTP/1.1\r\n{head}\r\n".encode() + body[:-50])
            wait_for(lambda: 'glocal_requests_total{method="GET",route="/health"' in asking.get("/metrics").text)
            os.kill(process.pid, signal.SIGTERM)
            wait_until_closed(place(where))
            assert process.is_alive()
            begun.sendall(body[-50:])
            said = everything(begun)
        assert said.startswith(b"HTTP/1.1 200")
        assert said.count(b'"ok":true') == 3
        process.join(PATIENCE)
    again = Workspace(file, device="cpu")  # nobody holds it any more
    again.close()


def test_a_token_and_a_new_file(tmp_path: Path) -> None:
    file = tmp_path / "new.glocal"
    words = ("--model", str(model_file()), "--token", "long-enough")
    with serving(file, *words, ends=signal.SIGINT) as (_, where):
        assert where.endswith("/?token=long-enough")
        root = where.partition("?")[0]
        assert httpx.get(f"{root}state", timeout=PATIENCE).status_code == 401
        with httpx.Client(headers={"Authorization": "Bearer long-enough"}, timeout=PATIENCE) as asking:
            assert asking.get(f"{root}state").json()["classes"] == []
            assert not file.exists()
            with refused("already-served", str(file)):
                Workspace(file)
            asking.post(f"{root}classes", data={"name": "six"}, files=uploads("six", 0, 2)).raise_for_status()
        assert file.exists()


def test_a_token_of_the_environment_is_not_shown_and_may_have_any_letters(tmp_path: Path) -> None:
    token, words = "übergroßeSchlüssel", ("--model", str(model_file()))
    with serving(tmp_path / "new.glocal", *words, ends=signal.SIGTERM, GLOCAL_TOKEN=token) as (_, where):
        assert where.endswith("/?token=...")
        root = where.partition("?")[0]
        for bearer in (token.encode(), token.encode("latin-1")):
            answer = httpx.get(f"{root}state", headers={"Authorization": b"Bearer " + bearer}, timeout=PATIENCE)  # type: ignore
            assert answer.status_code == 200
        welcome = httpx.get(root, params={"token": token}, timeout=PATIENCE)
        assert welcome.status_code == 303
        assert httpx.get(f"{root}state", cookies=welcome.cookies, timeout=PATIENCE).status_code == 200
        assert httpx.get(f"{root}health", timeout=PATIENCE).json()["uptime"] >= 0
        with connect(root) as broken:
            broken.sendall(f"GET /?token={token} HTTP/9\r\n\r\n".encode())
            everything(broken)
    assert token not in (tmp_path / "new.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0 can be reached by others: give a --token"),
        (["--host", "0.0.0.0", "--token", "short"], "at least 8 characters"),
        (["--token", "with a blank"], "no blanks, line ends"),
        (["--token", "from-a-file\n"], "no blanks, line ends"),
        (["--model", "photos-gelt"], "photos-gelt"),
    ],
)
def test_what_cannot_be_served_is_a_sentence(arguments: list[str], words: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["serve", str(tmp_path / "a.glocal"), *arguments])
    assert isinstance(result.exception, GlocalError)
    assert words in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_none_of_ours_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    for wrong in (file, tmp_path):
        with pytest.raises(DataError):
            Workspace(wrong)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
