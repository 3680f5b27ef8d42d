"""Long jobs under misfortune: killed, two at once, the cache lost or damaged, the disk full.

Each ends with the result of an undisturbed run, or with a sentence.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from campaign.mutation import damaged
from campaign.processes import small_disk
from campaign.results import keep
from glocal.research.engine.checkpoint import BEST, LAST
from glocal.research.engine.run_folder import METRICS
from photos import WORDS, write_classes
from serving import tiny_file
from tiny_runs import PATIENCE, fields, make_dataset, run_alone, start_cli

pytestmark = pytest.mark.campaign
ROUNDS = int(os.environ.get("GLOCAL_CAMPAIGN_ROUNDS", "6"))
JOBS = ("train", "bank", "prepare", "bulk")


@dataclass(frozen=True)
class Job:
    """A command that takes seconds; ``result`` of its folder and of what it said is what must always be the same."""

    name: str
    command: Callable[[Path], list[str]]
    result: Callable[[Path, str], object]
    goes_on: Callable[[Path], bool] = lambda out: False  # with --resume

    def start(self, out: Path, cache: Path, log: Path) -> Any:
        log.unlink(missing_ok=True)
        more = ["--resume"] if self.goes_on(out) else []
        return start_cli(*self.command(out), *more, output=log, cache=cache)

    def outcome(self, process: Any, out: Path, log: Path, whole: object) -> str:
        process.join(PATIENCE)
        said = log.read_text(errors="replace") if log.exists() else ""
        if process.exitcode == 0:
            same = self.result(out, said) == whole
            return "good" if same else self._wrong("another result", said)
        sentence = said.strip().splitlines()[-1:] if "Traceback" not in said else []
        if process.exitcode == 2 and sentence and sentence[0].startswith("glocal: "):
            return "refused"
        return self._wrong(f"exit {process.exitcode}", said)

    def _wrong(self, what: str, said: str) -> str:
        print(f"{self.name}: {what}\n{said[-2000:]}")
        return "wrong"


@dataclass(frozen=True)
class Whole:
    """The job undisturbed: what came of it, in which time, and how many bytes it took."""

    job: Job
    result: object
    seconds: float
    size: int


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("jobs")
    make_dataset(home / "data", per_class=20)
    (home / "pretrain.json").write_text(json.dumps(fields(home / "data", "pretrain")))
    frozen: dict[str, Any] = {"init": str(home / "pretrain"), "backbone": None, "method": {"name": "feat"}}
    frozen["train"] = {"tasks": 30, "backbone": "frozen", "views": 2}
    (home / "train.json").write_text(json.dumps(fields(home / "data", "train", **frozen)))
    run_alone(["pretrain", str(home / "pretrain.json")], home / "pretrain", cache=home / "cache")
    tiny_file(home)
    write_classes(home / "photos", WORDS, 0, 25)
    return home


def job_of(name: str, home: Path) -> Job:
    device = ["--device", "cpu"]
    if name == "train":
        return Job(
            name,
            lambda out: ["train", str(home / "train.json"), "--out", str(out), *device],
            lambda out, said: [(out / each).read_bytes() for each in (LAST, BEST, METRICS)],
            lambda out: (out / LAST).exists(),
        )
    if name == "bank":  # the same command again goes on with the bank in the cache
        tasks = ["--way", "2", "--unknown-way", "2", "--query", "5", "--tasks", "50", "--support-views", "2"]
        command = ["evaluate", str(home / "pretrain"), "--dataset", str(home / "data"), *tasks, *device, "--json"]
        return Job(name, lambda out: command, lambda out, said: json.loads(said[said.index("{") :])["metrics"])
    if name == "prepare":
        command = ["data", "prepare", "mine", "--from", str(home / "photos"), "--shares", "6,2,2"]
        return Job(name, lambda out: [*command, "-o", str(out)], lambda out, said: content(out))
    command = ["predict", str(home / "digits.glocal"), str(home / "photos"), "--workers", "1", *device]
    return Job(name, lambda out: [*command, "-o", str(out)], lambda out, said: rows(out), Path.exists)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rows(folder: Path) -> object:
    import pyarrow.dataset as ds

    assert (folder / "_SUCCESS").exists()
    return ds.dataset(folder, format="parquet").to_table().to_pylist()


@pytest.fixture(scope="module", params=JOBS)
def whole(request: pytest.FixtureRequest, home: Path) -> Whole:
    job = job_of(request.param, home)
    place = home / f"whole-{job.name}"
    place.mkdir()
    began = time.monotonic()
    process = job.start(place / "out", place / "cache", place / "log")
    process.join(PATIENCE)
    seconds = time.monotonic() - began
    said = (place / "log").read_text()
    assert process.exitcode == 0, said
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    return Whole(job, job.result(place / "out", said), seconds, size)


def told(what: str, whole: Whole, counts: Counter[str], about: str) -> None:
    record = {"tried": counts.total(), "about": about} | {each: counts[each] for each in ("good", "refused", "wrong")}
    keep("jobs", f"{whole.job.name}: {what}", record)
    assert counts["good"]
    assert not counts["wrong"], counts


def test_killed(whole: Whole, tmp_path: Path) -> None:
    """As often as it is killed, the last one that is left alone ends with the same."""
    rng, counts, kills = random.Random(1), Counter[str](), 0
    for turn in range(ROUNDS):
        place = tmp_path / f"{turn}"
        out, cache, log = place / "out", place / "cache", place / "log"
        place.mkdir()
        process = whole.job.start(out, cache, log)
        for _ in range(4):
            process.join(rng.uniform(0.05, whole.seconds))
            if process.exitcode is not None:  # done by now
                break
            process.kill()
            process.join()
            kills += 1
            process = whole.job.start(out, cache, log)
        found = whole.job.outcome(process, out, log, whole.result)
        if found == "refused":  # killed after its last step: there is a result already
            found = "good" if whole.job.result(out, "") == whole.result else "wrong"
        counts[found] += 1
    told("killed", whole, counts, f"{kills} kills at random moments, begun again after each; the result in the end")


def test_two_at_once(whole: Whole, tmp_path: Path) -> None:
    """With one cache; into folders of their own, and into the same one, where at most one is sent away."""
    counts = Counter[str]()
    for turn in range(ROUNDS):
        place = tmp_path / f"{turn}"
        place.mkdir()
        outs = [place / "out", place / ("out" if turn % 2 else "other")]
        logs = [place / "log", place / "other-log"]
        begun = [whole.job.start(out, place / "cache", log) for out, log in zip(outs, logs, strict=True)]
        found = [
            whole.job.outcome(process, out, log, whole.result)
            for process, out, log in zip(begun, outs, logs, strict=True)
        ]
        counts.update(found)
        counts["wrong"] += found == ["refused", "refused"]
    told("two at once", whole, counts, "in one cache; half of them into one folder, where one may be sent away")


def test_cache_lost_or_damaged(whole: Whole, tmp_path: Path) -> None:
    """While it is read and written: deleted, files in it cut off, emptied or overwritten."""
    rng, counts, done = random.Random(1), Counter[str](), Counter[str]()
    for turn in range(2 * ROUNDS):
        place = tmp_path / f"{turn}"
        place.mkdir()
        cache = place / "cache"
        process = whole.job.start(place / "out", cache, place / "log")
        for _ in range(3):
            process.join(rng.uniform(0.05, whole.seconds / 3))
            if process.exitcode is None:
                done[harm(rng, cache)] += 1
        counts[whole.job.outcome(process, place / "out", place / "log", whole.result)] += 1
        if process.exitcode == 0:  # and what is left in the cache does no harm
            again = whole.job.start(place / "again", cache, place / "log")
            counts[whole.job.outcome(again, place / "again", place / "log", whole.result)] += 1
    about = ", ".join(f"{n} times {how}" for how, n in sorted(done.items()) if how != "nothing there")
    told("cache lost or damaged", whole, counts, f"while in use: {about or 'it keeps nothing there'}")


def harm(rng: random.Random, cache: Path) -> str:
    files = sorted(path for path in cache.rglob("*") if path.is_file())
    if not files:
        return "nothing there"
    if rng.random() < 0.3:
        shutil.rmtree(cache, ignore_errors=True)
        return "deleted"
    with suppress(OSError):  # it may be gone by now
        path = rng.choice(files)
        old = path.read_bytes()
        if rng.random() < 0.5:
            new = damaged(rng, old)
            path.write_bytes(new)
            return "cut or changed"
        with path.open("r+b") as file:  # in its place, with its length
            file.seek(rng.randrange(len(old) + 1))
            file.write(rng.randbytes(rng.choice((1, 100, 10_000)))[: max(0, len(old) - file.tell())])
        return "overwritten"
    return "nothing there"


def test_full_disk(whole: Whole, tmp_path: Path) -> None:
    """With less room than it takes, then with enough."""
    rng, counts = random.Random(1), Counter[str]()
    for turn in range(ROUNDS):
        with small_disk(tmp_path / f"disk{turn}", f"{2 * whole.size + (4 << 20)}") as disk:
            filler = disk / "filler"
            with filler.open("wb") as file:
                file.write(bytes(whole.size + (4 << 20) + int(whole.size * rng.uniform(0, 1))))
            run = partial(whole.job.start, disk / "out", disk / "cache", tmp_path / "log")
            first = whole.job.outcome(run(), disk / "out", tmp_path / "log", whole.result)
            counts[first] += 1
            counts["wrong"] += len(list(disk.rglob("*.partial")))
            filler.unlink()
            if first == "refused":
                then = whole.job.outcome(run(), disk / "out", tmp_path / "log", whole.result)
                counts["good" if then == "good" else "wrong"] += 1
    told("full disk", whole, counts, "less room than it takes, and again with enough")
