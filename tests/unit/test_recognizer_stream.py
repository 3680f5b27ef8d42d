"""Any number of pictures in bounded memory; files of answers that grow, break off and go on."""

from __future__ import annotations

import csv
import json
import threading
from pathlib import Path

import numpy as np
import pytest

from faults import disk_of, noted
from glocal.bulk.results import COLUMNS, ResultFile
from glocal.common.errors import DataError
from glocal.recognizer import Prediction, Unreadable
from glocal.recognizer.batches import AHEAD, BATCH
from glocal.recognizer.photos.sources import Source, picture_files
from photos import recognizer, some
from refusal import refused


def test_the_input_is_read_only_a_few_batches_ahead() -> None:
    asked = decoded = largest = 0
    lock = threading.Lock()
    [pixels] = some("one", 0, 1)

    def read() -> np.ndarray:
        nonlocal decoded
        with lock:
            decoded += 1
        return pixels

    def endless():
        nonlocal asked
        while True:
            asked += 1
            yield Source(f"{asked}", read)

    answers = recognizer().stream(endless())
    for n in range(1, 20 * BATCH):
        assert next(answers).path == str(n)
        largest = max(largest, asked - n, decoded - n)
    answers.close()  # the caller may stop
    assert not [each for each in threading.enumerate() if "ThreadPool" in each.name and not each.daemon]
    assert largest <= (AHEAD + 1) * BATCH
    assert decoded <= asked


def test_memory_holds_fitted_pictures_and_not_large_ones() -> None:
    """What waits for its turn is as small as the backbone wants it, whatever came in; batches are fixed stretches."""
    large = np.zeros((600, 800, 3), np.uint8)
    found = recognizer().batches(large for _ in range(70))
    seen = [[each.pixels.nbytes for each in answered.batch.readable] for answered in found]
    assert seen == [[32 * 32 * 3] * n for n in (32, 32, 6)]


def test_files_below_folders_come_in_order_and_lazy(tmp_path: Path) -> None:
    for name in ("b/2.png", "b/1.JPG", "a/x.jpeg", "c.png", "note.txt", ".hidden/1.png", "a/.2.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [path.relative_to(tmp_path).as_posix() for path in picture_files([tmp_path])]
    assert found == ["a/x.jpeg", "b/1.JPG", "b/2.png", "c.png"]
    lone = picture_files([tmp_path / "note.txt", tmp_path / "no such folder"])
    assert [path.name for path in lone] == ["note.txt", "no such folder"]  # named by hand: told of when opened
    (tmp_path / "empty").mkdir()
    steps = picture_files([tmp_path / "c.png", tmp_path / "empty"])
    assert next(steps).name == "c.png"
    with refused("data", "no picture in this folder"):
        next(steps)


def answers(n: int, start: int = 0) -> list[Prediction | Unreadable]:
    return [
        Unreadable(f"p{i}.png", "it is\nempty")
        if i % 7 == 3
        else Prediction(f"p,{i}.png", "bolt", False, i / 3, 99.0, {"bolt": 0.75, "unknown": 0.25}, "bolt", "why; so")
        for i in range(start, start + n)
    ]


def write_all(path: Path, found: list[Prediction | Unreadable]) -> None:
    with ResultFile(path, "me").writing() as write:
        for start in range(0, len(found), BATCH):
            write(found[start : start + BATCH])


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_rows_say_everything(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out.{ending}"
    write_all(path, answers(5))
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file)) if ending == "csv" else [json.loads(line) for line in file]
    assert [row["path"] for row in rows] == ["p,0.png", "p,1.png", "p,2.png", "p3.png", "p,4.png"]
    assert rows[3]["error"] == "it is\nempty"
    assert not rows[3]["label"]
    assert float(rows[1]["open_score"]) == pytest.approx(1 / 3, abs=1e-6)
    assert rows[1]["is_unknown"] in ("false", False)
    assert {row["recognizer"] for row in rows} == {"me"}
    assert list(tmp_path.iterdir()) == [path]
    if ending == "csv":
        assert tuple(rows[0]) == COLUMNS


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_broken_run_goes_on_to_the_same_file(tmp_path: Path, ending: str) -> None:
    whole = tmp_path / f"whole.{ending}"
    write_all(whole, answers(100))
    content = whole.read_bytes()
    for cut in range(1, len(content), 997):
        path = tmp_path / f"out.{ending}"
        partial = tmp_path / f"out.{ending}.partial"
        partial.write_bytes(content[:cut])
        results = ResultFile(path, "me")
        try:
            done = results.done(resume=True)
        except DataError:  # not even the header was whole
            assert cut < 120
            partial.unlink()
            continue
        assert len(done) % BATCH == 0
        assert done == {each.path for each in answers(100)[: len(done)]}
        rest = [each for each in answers(100) if each.path not in done]
        with results.writing() as write:
            write(rest)
        assert path.read_bytes() == content
        path.unlink()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("out.jsonl", b'{"text": "my notes"}\n'),
        ("out.jsonl", b'{"text": "my notes"}'),
        ("out.jsonl", b"my notes"),
        ("out.jsonl", b"{my notes}\n"),
        ("out.jsonl", b"\n"),
        ("out.csv", b"my,notes\n"),
        ("out.csv", b"another row\n"),
        ("out.jsonl", b"another row\n"),
    ],
)
def test_rows_of_somebody_else_are_refused_and_stay(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    if content == b"another row\n":  # in the middle of ours
        write_all(path, answers(5))
        first, second, rest = path.read_bytes().split(b"\n", 2)
        content = b"\n".join([first, second, content + rest])
    path.write_bytes(content)
    with refused("no-answers", "choose another name"):
        ResultFile(path, "me").done(resume=True)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {name: content}


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_any_name_comes_back_as_it_was(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out.{ending}"
    names = ["a\rb.png", "a\nb.png", "a\r\nb.png", 'a"b.png', "a\x85b.png", "\udc80.png"]
    write_all(path, [Unreadable(name, "why") for name in names])
    assert ResultFile(path, "me").done(resume=True) == set(names)


def test_what_is_not_continued_or_written_over(tmp_path: Path) -> None:
    write_all(tmp_path / "out.csv", answers(40))
    with refused("other-recognizer", "(me, this is you)"):
        ResultFile(tmp_path / "out.csv", "you").done(resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    partial = tmp_path / "out.csv.partial"
    partial.write_text("x")
    with refused("interrupted-run"):
        ResultFile(tmp_path / "out.csv", "me").done(resume=False)
    assert partial.read_text() == "x"
    with refused("data", ".csv or .jsonl"):
        ResultFile(tmp_path / "out.txt", "me")
    (tmp_path / "dir.csv").mkdir()
    with refused("bad-target"):
        ResultFile(tmp_path / "dir.csv", "me")


def test_a_finished_file_is_continued_with_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    write_all(path, answers(40))
    results = ResultFile(path, "me")
    assert len(results.done(resume=True)) == 40
    with results.writing() as write:
        write(answers(3, start=40))
    write_all(tmp_path / "whole.csv", answers(43))
    assert path.read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_continuation_that_fails_costs_a_finished_file_nothing(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out.{ending}"
    write_all(path, answers(9))
    for start, more in ((9, 0), (9, 2), (11, 0)):  # each break leaves rows that make no whole batch
        results = ResultFile(path, "me")
        assert len(results.done(resume=True)) == start
        with refused("data"), results.writing() as write:
            write(answers(more, start=start))
            raise DataError("interrupted")
    results = ResultFile(path, "me")
    assert len(results.done(resume=True)) == 11
    with results.writing() as write:
        write(answers(1, start=11))
    write_all(tmp_path / f"whole.{ending}", answers(12))
    assert path.read_bytes() == (tmp_path / f"whole.{ending}").read_bytes()


def test_a_failed_run_without_answers_leaves_nothing(tmp_path: Path) -> None:
    results = ResultFile(tmp_path / "out.csv", "me")
    with refused("data", "no picture"), results.writing():
        raise DataError("no picture")
    assert list(tmp_path.iterdir()) == []
    with disk_of(2000), refused("not-written", "out.csv.partial"), results.writing() as write:
        write(answers(2))
        write(answers(200))
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv.partial"]


def test_two_at_one_file_of_answers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    first, second = ResultFile(path, "me"), ResultFile(path, "me")
    with first.alone():
        with refused("busy", str(path)), second.alone():
            pass
        with first.writing() as write:
            write(answers(2))
    with second.alone():
        assert len(second.done(resume=True)) == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.csv", "out.csv.partial"]


@pytest.mark.parametrize("resume", [True, False])
def test_a_link_to_the_answers_stays_one_and_the_permissions_stay(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere/out.csv", tmp_path / "link.csv"
    write_all(real, answers(2))
    real.chmod(0o600)
    link.symlink_to(real)
    results = ResultFile(link, "me")
    results.done(resume=resume, force=not resume)
    with results.writing() as write:
        assert results.partial.stat().st_mode & 0o077 == 0, "open to others while it is written"
        write(answers(3, start=2))
    assert link.is_symlink()
    assert len(real.read_text().splitlines()) > 4
    assert real.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["elsewhere", "link.csv", "out.csv"]


def test_the_name_of_the_answers_is_on_the_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = noted(monkeypatch)
    write_all(tmp_path / "out.csv", answers(2))
    assert done[-3:] == ["sync out.csv.partial", "rename", f"sync {tmp_path.name}"]
