"""SIGKILL while a folder fills: each picture is in one place and on one line."""

from __future__ import annotations

import csv
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from apart import kill_after, start
from photos import WORDS, recognizer, some
from serving import png


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


def watch_and_kill(home: Path, n: int, kills: int, *way: str) -> None:
    recognizer().save(home / "digits.glocal")
    digits = [
        (f"cam{i % 3}/{word}-{i}.png", some(word, i, i + 1)[0]) for i in range(30, 30 + n // 10) for word in WORDS
    ]
    contents = {name: png(pixels) for name, pixels in digits}
    inbox, out, log = home / "in", home / "out", home / "log"
    inbox.mkdir()
    command = ("watch", home / "digits.glocal", inbox, "--out", out, "--settle", "0.2", "--device", "cpu", *way)
    stop = threading.Event()
    filling = threading.Thread(target=fill, args=(inbox, contents, stop))
    filling.start()
    try:
        killed = 0
        for kill in range(kills):
            until = n * (kill + 1) / (kills + 2)
            killed += kill_after(start(*command, out=log, err=log), lambda: lines(out), until, within=0.3)
        assert killed == kills, log.read_text()
        filling.join()
    finally:
        stop.set()
    last = start(*command, "--once", out=log, err=log)
    last.join()
    assert last.exitcode == 0, log.read_text()
    with (out / "answers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert Counter(str(Path(row["path"]).relative_to(inbox)) for row in rows) == dict.fromkeys(contents, 1)
    places = {row["place"]: str(Path(row["path"]).relative_to(inbox)) for row in rows}
    there = {str(path.relative_to(out)): path for path in out.rglob("*") if path.is_file() and path.suffix == ".png"}
    assert there.keys() == places.keys()
    assert all(path.read_bytes() == contents[places[place]] for place, path in there.items())
    assert sorted(path.name for path in out.rglob(".*")) == []
    left = {str(path.relative_to(inbox)) for path in inbox.rglob("*.png")}
    assert left == (set() if "--move" in way else set(contents))


def test_killed_four_times(tmp_path: Path) -> None:
    watch_and_kill(tmp_path, 40, 4, "--move")


@pytest.mark.long
@pytest.mark.parametrize("way", [(), ("--move",), ("--link",)])
def test_five_hundred_pictures_and_twenty_kills(tmp_path: Path, way: tuple[str, ...]) -> None:
    watch_and_kill(tmp_path, 500, 20, *way)
