"""The commands on recognizers: what they print for programs, bad pictures, and a run that is killed."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from converted import model_file
from faults import full
from glocal.cli.main import app
from glocal.recognizer.batches import BATCH
from glocal.serve.workspace import Workspace
from photos import WORDS, write, write_classes
from waiting import PATIENCE, wait_for

KNOWN = ("zero", "one", "two", "three", "four")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/<class>, new/ with known and unknown digits, and digits.glocal."""
    home = tmp_path_factory.mktemp("home")
    write_classes(home / "photos", KNOWN, 0, 8)
    for word in WORDS:
        write(home / "new", word, 40, 45, prefix=f"{word}-")
    glocal("enroll", home / "photos", "-o", home / "digits.glocal", "--model", model_file(), "--device", "cpu")
    return home


def glocal(*words: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, f"{words}: {done.output} {done.exception!r}"
    return done


def test_what_programs_read(home: Path, tmp_path: Path) -> None:
    """What people read is in the tutorial, which test_tutorial.py runs line by line."""
    file = Path(shutil.copy(home / "digits.glocal", tmp_path))
    cpu = ("--device", "cpu")
    assert glocal("predict", file, home / "new", "--csv", tmp_path / "out.csv", *cpu).stdout == ""
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [Path(row["path"]).name for row in rows] == sorted(path.name for path in (home / "new").iterdir())
    assert all((row["is_unknown"] == "true") == (row["label"] == "unknown") for row in rows)
    listed = json.loads(glocal("predict", file, home / "new", "--json", *cpu).stdout)
    assert [each["path"] for each in listed] == [row["path"] for row in rows]
    assert {"path", "label", "is_unknown", "open_score", "threshold", "probabilities"} <= listed[0].keys()
    assert [f"{each['open_score']:.6g}" for each in listed] == [row["open_score"] for row in rows]

    glocal("add", file, "s\u00edx", *write(tmp_path / "more", "six", 0, 4), *cpu)
    glocal("add", file, "si\u0301x", *write(tmp_path / "more", "six", 4, 6), *cpu)  # the same letters, decomposed
    glocal("rename", file, "si\u0301x", "six", *cpu)
    assert list(json.loads(glocal("classes", file, "--json").stdout)) == [*sorted(KNOWN), "six"]

    loose = json.loads(glocal("threshold", file, "--target-rate", "0.2", "--json").stdout)
    assert loose["target_rate"] == 0.2
    write_classes(tmp_path / "labelled", KNOWN, 20, 28)
    shutil.copy(home / "photos" / "one" / "000.png", tmp_path / "labelled" / "stray.png")
    said = glocal("check", file, tmp_path / "labelled", "--json", *cpu)
    assert "stray.png" in said.stderr
    checked = json.loads(said.stdout)
    assert (checked["accuracy"]["n"], checked["caught"]["n"]) == (40, 0)
    inspected = json.loads(glocal("inspect", file, "--json", *cpu).stdout)
    assert (inspected["model"]["encoder"]["name"], inspected["classes"][-1]["name"]) == ("embedded-gel", "six")


def test_a_check_with_the_photos_that_taught_it_says_so(home: Path, tmp_path: Path) -> None:
    write_classes(tmp_path / "labelled", KNOWN, 20, 22)
    shutil.copy(home / "photos" / KNOWN[0] / "000.png", tmp_path / "labelled" / KNOWN[0])
    told = glocal("check", home / "digits.glocal", tmp_path / "labelled", "--device", "cpu").stdout
    assert "1 of the pictures taught it" in told
    assert "taught it" in glocal("check", home / "digits.glocal", home / "photos", "--device", "cpu").stdout


def test_labelled_pictures_show_the_trade_off_and_set_the_threshold(home: Path, tmp_path: Path) -> None:
    file, cpu = Path(shutil.copy(home / "digits.glocal", tmp_path)), ("--device", "cpu")
    write_classes(tmp_path / "labelled", KNOWN, 20, 30)
    write(tmp_path / "labelled" / "unknown", "seven", 20, 40)
    rows = json.loads(glocal("check", file, tmp_path / "labelled", "--json", *cpu).stdout)["trade_off"]
    assert [row["target"] for row in rows] == [0.01, 0.02, 0.05, 0.1, 0.2, 0.3]
    for name, n in (("false_unknown", 50), ("caught", 20)):
        counts = [row[name]["k"] for row in rows]
        assert counts == sorted(counts)
        assert {row[name]["n"] for row in rows} == {n}
    assert "target rate   false unknown" in glocal("check", file, tmp_path / "labelled", *cpu).stdout

    before = json.loads(glocal("threshold", file, "--json", *cpu).stdout)
    assert "50 confirmed pictures joined" in glocal("check", file, tmp_path / "labelled", "--learn", *cpu).stderr
    learned = json.loads(glocal("threshold", file, "--json", *cpu).stdout)
    assert learned["n_scores"] == before["n_scores"] + 50
    assert learned["interval"][1] - learned["interval"][0] < before["interval"][1] - before["interval"][0]

    asked = glocal("threshold", file, "--from", tmp_path / "labelled", "--target-rate", "0.2", "--json", *cpu)
    assert json.loads(asked.stdout)["target_rate"] == 0.2
    chosen = json.loads(glocal("threshold", file, "--from", tmp_path / "labelled", "--json", *cpu).stdout)
    checked = json.loads(glocal("check", file, tmp_path / "labelled", "--json", *cpu).stdout)
    costs = {row["target"]: row["false_unknown"]["value"] - row["caught"]["value"] for row in checked["trade_off"]}
    assert costs[chosen["target_rate"]] == min(costs.values())
    glocal("threshold", file, "--target-rate", "0.01", "--with-unknown", "0.02", *cpu)
    higher = glocal("threshold", file, "--from", tmp_path / "labelled", "--target-rate", "0.2", "--json", *cpu)
    assert json.loads(higher.stdout)["target_rate"] == 0.2, "what known unknowns may raise it to follows"
    glocal("threshold", file, "--from", tmp_path / "labelled", "--set", "1", code=1)


def test_pictures_that_cannot_be_read_get_a_row_and_an_exit_code(home: Path, tmp_path: Path) -> None:
    file, bad, good = home / "digits.glocal", tmp_path / "bad.png", sorted((home / "new").iterdir())[0]
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


HALF_A_ROW = "half a row,"
STOPS = f"""
import time
from glocal.cli.main import main
from glocal.recognizer.batches import Embedder
batch, batches = Embedder.batch, []
def stopping(self, pictures):
    batches.append(pictures)
    if len(batches) == 5:
        time.sleep({PATIENCE})
    return batch(self, pictures)
Embedder.batch = stopping
main()
"""  # the command, which stops after four batches


def test_killed_in_the_middle_and_resumed(home: Path, tmp_path: Path) -> None:
    """SIGKILL while rows are being written; --resume ends with the file of a run without a break."""
    file, many = home / "digits.glocal", tmp_path / "many"
    for word in WORDS:
        write(many / word, word, 0, 20)
    whole, out = tmp_path / "whole.csv", tmp_path / "out.csv"
    glocal("predict", file, many, "--csv", whole, "--device", "cpu")
    partial = tmp_path / "out.csv.partial"
    command = [sys.executable, "-c", STOPS, "predict", file, many, "--csv", out, "--device", "cpu"]
    alike = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}  # sums differ with the number of threads
    with subprocess.Popen(command, env=alike, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: partial.exists() and len(partial.read_text().splitlines()) > 4 * BATCH)
        finally:
            process.send_signal(signal.SIGKILL)
    with partial.open("a") as rows:
        rows.write(HALF_A_ROW)
    assert not out.exists()
    glocal("predict", file, many, "--csv", out, "--resume", "--device", "cpu")
    assert out.read_bytes() == whole.read_bytes()
    assert not partial.exists()


def test_nothing_is_written_over_unasked(home: Path, tmp_path: Path) -> None:
    cpu = ("--device", "cpu")
    file = Path(shutil.copy(home / "digits.glocal", tmp_path / "my digits.glocal"))
    enroll = ("enroll", home / "photos", "-o", file, "--model", model_file(), *cpu)
    before = file.read_bytes()
    said = str(glocal(*enroll, code=1).exception)
    assert "my digits.glocal is there already; write over it with --force" in said
    photo = write(tmp_path, "zero", 50, 51)[0]
    for option, name in (("--csv", "out.csv"), ("--jsonl", "out.jsonl"), ("--explain", "why")):
        predict = ("predict", file, photo, option, tmp_path / name, *cpu)
        glocal(*predict)
        said = str(glocal(*predict, code=1).exception)
        assert f"{name} is there already; " in said
        assert ("--resume" in said) == (option != "--explain")
        glocal(*predict, "--force")
    glocal("predict", file, photo, "--csv", tmp_path / "out.csv", "--resume", *cpu)
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 2
    (tmp_path / "out.csv.partial").write_text("half")
    (tmp_path / "out.csv").unlink()
    assert "--force" in str(glocal("predict", file, photo, "--csv", tmp_path / "out.csv", *cpu, code=1).exception)
    glocal("predict", file, photo, "--csv", tmp_path / "out.csv", "--force", *cpu)
    for more in (("--resume", "--csv", tmp_path / "out.csv"), ("--out", tmp_path / "parts")):
        assert "--force" in str(glocal("predict", file, photo, "--force", *more, *cpu, code=1).exception)
    assert file.read_bytes() == before
    said = glocal(*enroll, "--force").output
    assert f"Next: glocal predict '{file}' PHOTOS..." in said, "as a shell takes it"


def test_undo_takes_back_what_the_commands_and_the_page_changed(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "digits.glocal"
    contents = [shutil.copy(home / "digits.glocal", file).read_bytes()]
    for change in (("rename", "zero", "null"), ("threshold", "--set", "-0.5"), ("remove", "one")):
        glocal(change[0], file, *change[1:])
        contents.append(file.read_bytes())
    with pytest.MonkeyPatch.context() as patch:  # what cannot be written changes nothing
        patch.setattr(os, "fsync", full)
        glocal("undo", file, code=1)
    assert file.read_bytes() == contents[3]
    for label, before in (("class one removed", contents[2]), ("threshold set", contents[1])):
        assert json.loads(glocal("undo", file, "--json").stdout)["undone"] == label
        assert file.read_bytes() == before
    page = Workspace(file, device="cpu")
    try:
        assert (page.snapshot.undo_label, page.snapshot.redo_label) == ("class zero renamed to null", "threshold set")
        assert getattr(glocal("undo", file, code=1).exception, "code", None) == "already-served"
        glocal("rename", file, "two", "deux")
        assert page.take_in().undo_label == "a change by another program"
        page.go(-1)
    finally:
        page.close()
    assert file.read_bytes() == contents[1]
    glocal("undo", file)
    assert file.read_bytes() == contents[0]
    assert getattr(glocal("undo", file, code=1).exception, "code", None) == "nothing-to-undo"


def test_enroll_takes_unknown_for_known_unknowns_and_says_so(tmp_path: Path) -> None:
    write_classes(tmp_path / "photos", KNOWN[:2], 0, 5)
    write(tmp_path / "photos" / "Unknown", "six", 0, 4)
    write(tmp_path / "more", "seven", 0, 3)
    enroll = ("enroll", tmp_path / "photos", "--model", model_file(), "--device", "cpu", "--force")
    said = glocal(*enroll, "-o", tmp_path / "one.glocal").output
    assert "4 photos in unknown/ are known unknowns: of other things than the classes" in said
    shown = json.loads(glocal("inspect", tmp_path / "one.glocal", "--json").stdout)
    assert [each["name"] for each in shown["classes"]] == ["one", "zero"]
    assert len(shown["unknown"]) == 4
    glocal(*enroll, "-o", tmp_path / "one.glocal", "--unknown", tmp_path / "more")
    assert len(json.loads(glocal("inspect", tmp_path / "one.glocal", "--json").stdout)["unknown"]) == 7
    write(tmp_path / "photos" / "Unknown", "zero", 0, 1, prefix="again-")
    assert "cannot be unknown too" in str(glocal(*enroll, "-o", tmp_path / "two.glocal", code=1).exception)
    shutil.rmtree(tmp_path / "photos" / "zero")
    shutil.rmtree(tmp_path / "photos" / "one")
    assert "there is no class" in str(glocal(*enroll, "-o", tmp_path / "two.glocal", code=1).exception)
    assert not (tmp_path / "two.glocal").exists()
