"""The engine of many machines, on this one: two workers, one of them killed."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from glocal.collection.job import Job, JobFolder
from glocal.collection.local import work
from glocal.collection.store import Store
from glocal_runtime import Recognizer
from photos import WORDS, recognizer, write

pytest.importorskip("ray", reason="Ray is not installed: pip install 'glocal[ray]', or make test-ray")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore"),  # Ray's own, which come and go with its versions
]


def workers_of(cache: Path) -> list[int]:
    """Actors that this test started: they have its environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:
            continue
        if command.startswith(b"ray::MapWorker") and str(cache).encode() in environment:
            found.append(int(folder.name))
    return found


def test_the_same_rows_although_a_worker_is_killed(tmp_path: Path, own_cache: Path) -> None:
    from glocal.collection.on_ray import work as work_on_ray

    file = tmp_path / "digits.glocal"
    recognizer().save(file)
    for word in WORDS:
        write(tmp_path / "new" / word, word, 0, 20)
    (tmp_path / "new" / "bad.png").write_text("no picture")
    job = Job("answers", str(file), Recognizer.load(file).contents.identity, (str(tmp_path / "new"),), "cpu")
    here, there = (JobFolder(Store(str(tmp_path / name))) for name in ("here", "there"))
    for folder in (here, there):
        folder.begin(job, resume=False)
    work(here, job, workers=1)
    killed: list[int] = []
    over = threading.Event()

    def kill_one() -> None:
        while not killed and not over.wait(0.05):
            if len(there.waiting()) < there.parts() and (found := workers_of(own_cache)):
                os.kill(found[0], signal.SIGKILL)
                killed.append(found[0])

    thread = threading.Thread(target=kill_one)
    thread.start()
    try:
        seen: list[int] = []
        work_on_ray(there, job, workers=2, done=seen.append)
    finally:
        over.set()
        thread.join()
    assert killed
    assert there.finish() == here.finish()
    assert sum(seen) == 201
    rows = [ds.dataset(tmp_path / name, format="parquet").to_table() for name in ("here", "there")]
    assert rows[0].equals(rows[1])
    assert not (Path.home() / ".ray" / "auth_token").exists() or "RAY_AUTH_TOKEN" not in os.environ
