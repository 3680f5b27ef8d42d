"""Thousands of requests that mean harm: no answer above 499, no crash, nothing written where it does not belong."""

from __future__ import annotations

import os
import random
import select
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from glocal.serve.connections import Connection
from glocal.serve.security import Limits, Settings
from hostile_requests import Hostile, hostile_requests, slow_ones
from serving import PAGE, connect, everything, listening, tiny_file, uploads
from waiting import PATIENCE

SLOW = 3.0  # seconds: who takes longer is dropped; on a busy machine the others may take a second
SMALL = Limits(file_bytes=100_000, request_bytes=200_000, pixels=1_000_000, images=8, upload_seconds=SLOW)
ENOUGH = 1.0  # seconds to wait for an answer before hanging up
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PLACES = {"os.rename": 2, "os.mkdir": 1, "os.remove": 1, "os.rmdir": 1, "os.link": 2, "os.symlink": 2, "os.truncate": 1}
RUNS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")


class Written:
    """What the threads of the server write, wherever; the test itself runs in the main thread and in "client" ones."""

    def __init__(self) -> None:
        self.on, self.paths, self.programs = False, set[str](), []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on or threading.current_thread() is threading.main_thread():
            return
        if threading.current_thread().name.startswith("client"):
            return
        if event == "open" and isinstance(args[0], str | bytes | Path) and (args[2] or 0) & WRITING:
            self.paths.add(os.fsdecode(args[0]))
        elif event in PLACES:
            inside = args[1] if event in ("os.remove", "os.rmdir") and args[1] != -1 else None  # an open folder
            start = "" if inside is None else os.readlink(f"/proc/self/fd/{inside}")
            self.paths.update(os.path.join(start, os.fsdecode(each)) for each in args[: PLACES[event]])
        elif event in RUNS:
            self.programs.append(event)


written = Written()


@contextmanager
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that is watched; all that it must not do is checked at the end."""
    home, scratch, here = (tmp_path / name for name in ("home", "scratch", "here"))
    for folder in (home, scratch, here):
        folder.mkdir()
    file = tiny_file(home)
    ensure_running()  # the server that forks decoders has a temporary folder
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(Connection, "head_seconds", SLOW)
    lock = home / f".{file.name}.lock"
    allowed = (str(file), f"{file}.history", str(lock), str(scratch), os.devnull)
    written.paths, written.programs, written.on = set(), [], True
    try:
        with listening(file, settings=Settings(limits=SMALL)) as address:
            yield address
            with httpx.Client(base_url=address, headers=PAGE, timeout=PATIENCE) as asking:
                assert asking.get("/health").json()["status"] == "ok"
                assert 'status="5' not in asking.get("/metrics").text  # also for those who did not wait for it
                if asking.get("/classes").json():
                    answer = asking.post("/predict", files=uploads("one", 50, 51)).json()["answers"][0]
                    assert answer["ok"]
    finally:
        written.on = False
    outside = {path for path in written.paths if not path.startswith(allowed)}
    assert not outside
    assert written.paths
    assert not written.programs
    assert list(here.iterdir()) == []
    assert list(scratch.iterdir()) == []  # a model that is read passes through, and goes
    assert {path.name for path in home.iterdir()} <= {file.name, f"{file.name}.history", lock.name}
    inside = {path.name for path in (home / f"{file.name}.history").iterdir()}
    assert inside == {"journal.json", "parts"}


def send(address: str, hostile: Hostile) -> str:
    """The status, or how the connection ended."""
    with connect(address) as one:
        try:
            one.sendall(hostile.raw)
            if not hostile.slow and not select.select([one], [], [], ENOUGH)[0]:
                one.shutdown(socket.SHUT_WR)  # the server waits for more: there is no more
            said = everything(one)
        except TimeoutError:
            raise  # the server hangs
        except OSError:
            return "closed"  # it hung up while we spoke
    return said.split(b" ", 2)[1].decode("latin-1") if said.startswith(b"HTTP/1.1 ") else "closed"


def by_hand(address: str, n: int, number: int) -> Counter[str]:
    rng = random.Random(number)
    with httpx.Client(base_url=address, timeout=PATIENCE) as asking:
        found = asking.post("/predict", files=uploads("six", 0, 3)).json()["answers"]
        photos = [photo["id"] for each in asking.get("/state").json()["classes"] for photo in each["photos"]]
    known = [each["id"] for each in found] + photos
    heard: Counter[str] = Counter()
    slow = slow_ones()
    made = islice(hostile_requests(rng, known), n - len(slow))
    with ThreadPoolExecutor(len(slow) + 4, thread_name_prefix="client") as clients:
        late = [clients.submit(send, address, each) for each in slow]
        while some := list(islice(made, 100)):
            for hostile, status in zip(some, clients.map(lambda each: send(address, each), some), strict=True):
                assert not status.startswith("5"), (hostile.kind, status, hostile.raw[:3000])
                heard[status] += 1
        for each in late:
            status = each.result()
            assert status in ("408", "closed")
            heard[status] += 1
    return heard


def by_schema(address: str, n: int, number: int) -> Counter[str]:
    """At least ``n``, from the schema that the server itself hands out: half of them as it allows, half not."""
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json", timeout=PATIENCE)
    operations = [each.ok() for each in schema.get_all_operations()]
    heard: Counter[str] = Counter()
    each_gets = n // (2 * len(operations)) + 1
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            quick = settings(
                max_examples=each_gets,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )

            @seed(number)
            @quick
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: schemathesis.Case) -> None:
                response = case.call(base_url=address, headers=PAGE | {"Host": "localhost"}, timeout=PATIENCE)
                heard[str(response.status_code)] += 1
                case.validate_response(response, checks=CHECKS)

            with suppress(Unsatisfiable):  # where nothing can be given, nothing wrong can be given
                ask()
    return heard


def test_requests_made_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(tmp_path, monkeypatch) as address:
        heard = by_hand(address, 260, 8)
    assert heard.keys() >= {"200", "400", "404", "413", "422", "403", "408"}


def test_requests_made_from_the_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(tmp_path, monkeypatch) as address:
        heard = by_schema(address, 40, 8)
    assert heard.keys() >= {"200", "422"}


@pytest.mark.long
def test_ten_thousand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = int(time.time())  # other ones on every run
    with watched(tmp_path, monkeypatch) as address:
        heard = by_schema(address, 5000, number)  # less: some addresses take nothing that could be varied
        heard += by_hand(address, 10_000 - heard.total(), number)
    print(f"seed {number}: {heard.total()} requests, {dict(sorted(heard.items()))}")
    assert heard.total() >= 10_000
