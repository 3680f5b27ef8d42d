"""The engine of many machines, on this one: two workers, one of them killed."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from glocal.bulk.job import Job, JobFolder
from glocal.bulk.on_ray import cluster
from glocal.bulk.on_ray import work as work_on_ray
from glocal.bulk.store import Store
from glocal.bulk.workers import work
from glocal.common.errors import GlocalError
from glocal.recognizer import Recognizer
from glocal.research.reproduce.runs import Run, RunSettings, about_run, folder_of, make_runs_on_ray
from photos import WORDS, recognizer, write
from refusal import refused
from tiny_runs import fields, make_dataset

pytest.importorskip("ray", reason="Ray is not installed: pip install 'glocal[ray]', or make test-ray")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore"),  # Ray's own, which come and go with its versions
]


@pytest.fixture(autouse=True)
def ray(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two cores; workers have the environment of the test, and import what lies beside it."""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    with ExitStack() as stack:
        try:
            stack.enter_context(cluster(None, 2))
        except GlocalError as error:
            if error.code != "no-ray":
                raise
            pytest.skip(str(error))
        yield


def workers_of(cache: Path, title: bytes = b"ray::MapWorker") -> list[int]:
    """Workers that this test started: they have its environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:
            continue
        if command.startswith(title) and str(cache).encode() in environment:
            found.append(int(folder.name))
    return found


def test_the_same_rows_although_a_worker_is_killed(tmp_path: Path, own_cache: Path) -> None:
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


def test_runs_of_two_seeds_on_a_worker_that_dies(tmp_path: Path, own_cache: Path) -> None:
    dataset = make_dataset(tmp_path / "data", per_class=20, splits={"train": 4, "val": 4, "test": 10})
    encoder, head = tmp_path / "encoder.json", tmp_path / "head.json"
    encoder.write_text(json.dumps(fields(dataset, "pretrain", pretrain={"epochs": 1})))
    few = {"backbone": "frozen", "tasks": 2}
    learned = fields(dataset, "train", backbone=None, init="?", method={"name": "snatcher-l"}, train=few)
    head.write_text(json.dumps(learned))
    runs = [Run(str(head), init=Run(str(encoder))).seeded(seed) for seed in range(2)]
    settings = RunSettings(tmp_path / "out", seeds=2)
    killed: list[int] = []
    over = threading.Event()

    def kill_one() -> None:
        while not killed and not over.wait(0.02):
            for pid in workers_of(own_cache, b"ray::_make"):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                return

    thread = threading.Thread(target=kill_one)
    thread.start()
    try:
        make_runs_on_ray(runs, settings, address=None)
    finally:
        over.set()
        thread.join()
    assert killed
    made = [about_run(folder_of(step, settings.runs)) for run in runs for step in run.chain()]
    assert [each["seed"] for each in made] == [0, 0, 1, 1]
    with refused("recipe"):
        make_runs_on_ray([Run(str(encoder), ("pretrain.epoch=1",))], settings, address=None)
