"""SIGKILL while a folder fills: each picture is in one place and on one line."""

from __future__ import annotations

import csv
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from apart import kill_after, start
from converted import model_file
from photos import WORDS, recognizer, some
from serving import png

# glocal, which kills itself in the place of the n-th time that it waits for the disk.
KILLED = """
import os, signal, sys
from itertools import count
from glocal.cli.main import main
n, waits, fsync = int(sys.argv.pop(1)), count(1), os.fsync
os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL) if next(waits) == n else fsync(file)
main()
"""


def fill(folder: Path, contents: dict[str, bytes], stop: threading.Event) -> None:
    """As a camera or a slow connection writes: in two pieces, under the final name."""
    for name, content in contents.items():
        if stop.is_set():
            return
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
            file.flush()
            time.sleep(random.choice([0.0, 0.0, 0.02]))
            file.write(content[len(content) // 2 :])


def lines(out: Path) -> int:
    answers = out / "answers.csv"
    return answers.read_bytes().count(b"\n") - 1 if answers.exists() else 0


def begun(home: Path, n: int) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """A command, and the pictures for its folder."""
    recognizer(model=model_file("tiny:protonet")).save(home / "digits.glocal")
    (home / "in").mkdir()
    numbered = ((i, word) for i in range(30, 30 + n // 10) for word in WORDS)
    contents = {f"cam{i % 3}/{word}-{i}.png": png(some(word, i, i + 1)[0]) for i, word in numbered}
    words = ("watch", home / "digits.glocal", home / "in", "--out", home / "out", "--settle", "0.2", "--device", "cpu")
    return tuple(map(str, words)), contents


def check_each_once(inbox: Path, out: Path, contents: dict[str, bytes], moved: bool) -> None:
    with (out / "answers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert Counter(str(Path(row["path"]).relative_to(inbox)) for row in rows) == dict.fromkeys(contents, 1)
    places = {row["place"]: str(Path(row["path"]).relative_to(inbox)) for row in rows}
    there = {str(path.relative_to(out)): path for path in out.rglob("*") if path.is_file() and path.suffix == ".png"}
    assert there.keys() == places.keys()
    assert all(path.read_bytes() == contents[places[place]] for place, path in there.items())
    assert sorted(path.name for path in out.rglob(".*")) == []
    assert {str(path.relative_to(inbox)) for path in inbox.rglob("*.png")} == (set() if moved else set(contents))


def test_killed_while_it_places_records_and_removes(tmp_path: Path) -> None:
    words, contents = begun(tmp_path, 10)
    fill(tmp_path / "in", contents, threading.Event())
    command = [sys.executable, "-c", KILLED]
    for n in (5, 20, 15):
        killed = subprocess.run([*command, str(n), *words, "--once", "--move"], capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, (n, killed.stderr)
    ended = subprocess.run([*command, "0", *words, "--once", "--move"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    check_each_once(tmp_path / "in", tmp_path / "out", contents, moved=True)


@pytest.mark.long
@pytest.mark.parametrize("way", [(), ("--move",), ("--link",)])
def test_five_hundred_pictures_and_twenty_kills(tmp_path: Path, way: tuple[str, ...]) -> None:
    kills, log = 20, tmp_path / "log"
    words, contents = begun(tmp_path, 500)
    stop = threading.Event()
    filling = threading.Thread(target=fill, args=(tmp_path / "in", contents, stop))
    filling.start()
    try:
        for kill in range(kills):
            until = len(contents) * (kill + 1) / (kills + 2)
            process = start(*words, *way, out=log, err=log)
            assert kill_after(process, lambda: lines(tmp_path / "out"), until, within=0.3), log.read_text()
        filling.join()
    finally:
        stop.set()
    last = start(*words, *way, "--once", out=log, err=log)
    last.join()
    assert last.exitcode == 0, log.read_text()
    check_each_once(tmp_path / "in", tmp_path / "out", contents, moved="--move" in way)
