"""The walk of a user on embedded pictures: enroll, predict, read the CSV, add a class, explain, threshold, check."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from glocal.cli.main import app
from photos import WORDS, write, write_classes

KNOWN = ("zero", "one", "two", "three", "four")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/<class>, new/ with known and unknown digits, labelled/<class> and labelled/unknown."""
    home = tmp_path_factory.mktemp("home")
    write_classes(home / "photos", KNOWN, 0, 8)
    for word in WORDS:
        write(home / "new", word, 40, 45, prefix=f"{word}-")
    write_classes(home / "labelled", KNOWN, 20, 28)
    write(home / "labelled" / "unknown", "six", 20, 40)
    return home


def glocal(*words: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, f"{words}: {done.output} {done.exception!r}"
    return done


def test_the_walk(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    file = Path("digits.glocal")
    cpu = ("--device", "cpu")
    promised = ("--max-false-unknown", "0.15")
    made = glocal("enroll", home / "photos", "-o", file, "--model", "embedded-gel", *promised, *cpu)
    assert "5 classes, 40 photos, embedded-gel" in made.stdout
    assert "at most 15 % false unknowns" in made.stdout

    told = glocal("predict", file, home / "new", "--csv", "out.csv", *cpu)
    assert told.stdout == ""
    with open("out.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [Path(row["path"]).name for row in rows] == sorted(path.name for path in (home / "new").iterdir())
    truth = [Path(row["path"]).name.partition("-")[0] for row in rows]
    known = [(row, word) for row, word in zip(rows, truth, strict=True) if word in KNOWN]
    others = [row for row, word in zip(rows, truth, strict=True) if word not in KNOWN]
    assert sum(row["label"] == word for row, word in known) >= 20
    assert sum(row["label"] == "unknown" for row in others) >= 15
    assert all((row["is_unknown"] == "true") == (row["label"] == "unknown") for row in rows)
    assert all(row["error"] == "" for row in rows)

    listed = json.loads(glocal("predict", file, home / "new", "--json", *cpu).stdout)
    assert [each["path"] for each in listed] == [row["path"] for row in rows]
    assert {"path", "label", "is_unknown", "open_score", "threshold", "probabilities"} <= listed[0].keys()
    assert [f"{each['open_score']:.6g}" for each in listed] == [row["open_score"] for row in rows]

    glocal("add", file, "s\u00edx", *write(home / "more", "six", 0, 4), *cpu)
    glocal("add", file, "si\u0301x", *write(home / "more", "six", 4, 6), *cpu)  # the same letters, decomposed
    glocal("rename", file, "si\u0301x", "six", *cpu)
    assert "six  " in glocal("classes", file).stdout.splitlines()[-1]
    again = json.loads(glocal("predict", file, home / "new", "--json", *cpu).stdout)
    sixes = [each["label"] for each in again if "six-" in each["path"]]
    assert sixes.count("six") >= 4

    two = sorted((home / "new").iterdir())[:2]
    spoken = glocal("predict", file, *two, "--explain", "why", *cpu)
    assert [path.name[:6] for path in sorted(Path("why").iterdir())] == ["00001-", "00002-"]
    for path in Path("why").iterdir():
        with Image.open(path) as image:
            assert min(image.size) > 300
    assert "patches match" in spoken.stdout

    assert "at most 15 %" in glocal("threshold", file).stdout
    loose = json.loads(glocal("threshold", file, "--max-false-unknown", "0.2", "--json").stdout)
    assert loose["max_false_unknown"] == 0.2
    by_class = json.loads(glocal("threshold", file, "--per-class", "--json").stdout)["per_class"]
    assert len(by_class) == 6
    assert "set by hand" in glocal("threshold", file, "--set", "1000").stdout
    free = json.loads(glocal("predict", file, home / "new", "--json", *cpu).stdout)
    assert not any(each["is_unknown"] for each in free)
    glocal("threshold", file, *promised, "--one-for-all")

    glocal("remove", file, "six", *cpu)
    glocal("rename", file, "zero", "nought", *cpu)
    assert list(json.loads(glocal("classes", file, "--json").stdout)) == ["four", "one", "three", "two", "nought"]
    glocal("rename", file, "nought", "zero", *cpu)

    checked = json.loads(glocal("check", file, home / "labelled", "--json", *cpu).stdout)
    assert checked["accuracy"]["n"] == 40
    assert checked["accuracy"]["value"] >= 0.75
    assert checked["caught"]["n"] == 20
    assert checked["caught"]["value"] >= 0.5
    shown = glocal("check", file, home / "labelled", *cpu).stdout
    assert "unknowns caught" in shown
    assert "called this; shows this:" in shown

    assert "the same answers as where it was made" in glocal("inspect", file, "--verify", *cpu).stdout
    inspected = json.loads(glocal("inspect", file, "--json", *cpu).stdout)
    assert inspected["model"]["name"] == "embedded-gel"
    assert inspected["classes"][-1]["name"] == "zero"


def test_pictures_that_cannot_be_read_get_a_row_and_an_exit_code(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "digits.glocal"
    glocal("enroll", home / "photos", "-o", file, "--model", "embedded-gel", "--device", "cpu")
    bad, good = tmp_path / "bad.png", sorted((home / "new").iterdir())[0]
    bad.write_text("x")
    some = glocal("predict", file, bad, good, "--json", "--device", "cpu", code=1)
    first, second = json.loads(some.stdout)
    assert first["label"] is None
    assert "not a picture" in first["error"]
    assert second["error"] is None
    glocal("predict", file, bad, good, "--jsonl", tmp_path / "out.jsonl", "--device", "cpu", code=1)
    assert len((tmp_path / "out.jsonl").read_text("utf-8").splitlines()) == 2
    none = CliRunner().invoke(app, ["predict", str(file), str(bad), "--device", "cpu"])
    assert "cannot use picture" in str(none.exception)


def test_killed_in_the_middle_and_resumed(home: Path, tmp_path: Path) -> None:
    """SIGKILL while rows are being written; --resume ends with the file of a run without a break."""
    file, many = tmp_path / "digits.glocal", tmp_path / "many"
    glocal("enroll", home / "photos", "-o", file, "--model", "embedded-gel", "--device", "cpu")
    for word in WORDS:
        write(many / word, word, 0, 100)
    whole, out = tmp_path / "whole.csv", tmp_path / "out.csv"
    glocal("predict", file, many, "--csv", whole, "--device", "cpu")
    partial = tmp_path / "out.csv.partial"
    command = [sys.executable, "-m", "glocal", "predict", file, many, "--csv", out, "--device", "cpu"]
    alike = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}  # sums differ with the number of threads
    with subprocess.Popen(command, env=alike, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            if partial.exists() and partial.read_bytes().count(b"\n") > 100:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.002)
        process.wait()
    assert not out.exists(), "it was over before it could be killed"
    glocal("predict", file, many, "--csv", out, "--resume", "--device", "cpu")
    assert out.read_bytes() == whole.read_bytes()
    assert not partial.exists()
