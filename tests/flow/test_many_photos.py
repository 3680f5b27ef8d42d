"""`predict --out`, `embed`, `predict --vectors` and `similar`, with processes of their own."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.dataset as ds
import pytest

from glocal.bulk.job import Job, JobFolder
from glocal.bulk.store import Store
from glocal.bulk.workers import work
from glocal.recognizer.enrolled import TOLERANCE, relative
from photos import WORDS, recognizer, write
from pictures import png_claiming
from refusal import one_sentence, refused
from web import served

HOSTILE = 6
Command = Callable[..., tuple[int, str, str]]  # the fixture of conftest.py: exit code, output, errors


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """digits.glocal, other.glocal on the same encoder, and new/ with 70 good photos and some that are not."""
    home = tmp_path_factory.mktemp("many")
    recognizer().save(home / "digits.glocal")
    recognizer({"one": 5, "six": 5, "two": 5}).save(home / "other.glocal")
    for word in WORDS:
        write(home / "new" / word, word, 40, 47)
    spoil(home / "new" / "bad", home / "new" / "one" / "040.png")
    return home


def spoil(folder: Path, good: Path) -> None:
    folder.mkdir()
    (folder / "truncated.png").write_bytes(good.read_bytes()[:200])
    (folder / "text.jpg").write_text("no picture")
    (folder / "empty.jpg").touch()
    (folder / "bomb.png").write_bytes(png_claiming(12_000, 12_000))
    (folder / "gone.png").symlink_to(folder / "nowhere.png")
    os.mkfifo(folder / "pipe.png")


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ds.dataset(folder, format="parquet").to_table().to_pylist()
    return found


def test_every_photo_has_one_row_as_in_a_csv(home: Path, tmp_path: Path, glocal: Command) -> None:
    out, file = tmp_path / "answers.parquet", home / "digits.glocal"
    code, said, _ = glocal("predict", file, home / "new", "--out", out, "--workers", 1, "--json")
    assert code == 1, "there are errors"
    assert json.loads(said) == {"folder": str(out), "photos": 76, "answered": 70, "errors": HOSTILE}
    assert glocal("predict", file, home / "new", "--csv", tmp_path / "answers.csv")[0] == 1
    with (tmp_path / "answers.csv").open(encoding="utf-8", newline="") as stream:
        expected = list(csv.DictReader(stream))
    found = rows(out)
    assert [row["uri"] for row in found] == [row["path"] for row in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours["label"] or "", (ours["error"] or "")[:40]) == (theirs["label"], theirs["error"][:40])
        assert ours["recognizer"] == theirs["recognizer"]
        for name in ("open_score", "threshold", "probability"):
            assert theirs[name] == ("" if ours["error"] else f"{ours[name]:.6g}")

    assert glocal("predict", file, home / "new", "--out", out)[0] == 2, "not written over"
    (out / "part-00001.parquet").unlink()
    (out / "_SUCCESS").unlink()
    stamp = (out / "part-00000.parquet").stat().st_mtime_ns
    assert glocal("predict", file, home / "new", "--out", out, "--resume", "--workers", 1)[0] == 1
    assert rows(out) == found
    assert (out / "part-00000.parquet").stat().st_mtime_ns == stamp, "finished parts are not computed again"


@pytest.mark.parametrize("kind", ["answers", "vectors"])
def test_a_file_that_changed_since_the_job_began_answers_nothing(home: Path, tmp_path: Path, kind: str) -> None:
    file, folder = home / "digits.glocal", JobFolder(Store(str(tmp_path / "out")))
    job = Job(kind, str(file), "that of another", (str(home / "new"),), "cpu")
    folder.begin(job, resume=False)
    with refused("changed-meanwhile", str(file), "that of another"):
        work(folder, job, workers=1)
    assert len(folder.waiting()) == folder.parts()


def test_vectors_answer_for_any_recognizer_on_the_encoder(home: Path, tmp_path: Path, glocal: Command) -> None:
    vectors = tmp_path / "vectors.parquet"
    assert glocal("embed", home / "digits.glocal", home / "new", "-o", vectors, "--workers", 1)[0] == 1
    seen, kept, other = tmp_path / "seen.parquet", tmp_path / "kept.parquet", home / "other.glocal"
    assert glocal("predict", other, "--vectors", vectors, "-o", kept)[0] == 1
    assert glocal("predict", other, home / "new", "-o", seen, "--workers", 1)[0] == 1
    for ours, theirs in zip(rows(kept), rows(seen), strict=True):
        same = ("uri", "label", "nearest", "error", "threshold", "recognizer")
        assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}
        if ours["error"] is None:
            assert relative(theirs["open_score"], ours["open_score"]) < 20 * TOLERANCE, "halves"
    photo = home / "new" / "six" / "041.png"
    listed = json.loads(glocal("similar", vectors, photo, "-n", 4, "--json")[1])
    assert listed[0]["uri"] == str(photo)
    assert listed[0]["similarity"] == pytest.approx(1, abs=1e-3)
    assert [each["similarity"] for each in listed] == sorted((each["similarity"] for each in listed), reverse=True)


def test_a_batch_of_which_nothing_can_be_read_has_rows_too(home: Path, tmp_path: Path, glocal: Command) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    for i in range(40):  # more than one batch
        (bad / f"bad{i}.heic").write_bytes(b"no picture")
    assert glocal("embed", home / "digits.glocal", bad, "-o", tmp_path / "none", "--workers", 1)[0] == 2
    one_sentence(glocal("similar", tmp_path / "none", home / "new" / "one" / "040.png"))
    write(bad, "one", 0, 1)
    for command in ("embed", "predict"):
        out = tmp_path / command
        assert glocal(command, home / "digits.glocal", bad, "-o", out, "--workers", 1)[0] == 1
        assert [row["error"] is None for row in rows(out)] == [True] + [False] * 40


def test_photos_of_the_web_and_of_object_storage(home: Path, tmp_path: Path, glocal: Command) -> None:
    paths = sorted((home / "new" / "one").iterdir())
    expected = recognizer().predict(paths)
    memory = fsspec.filesystem("memory")
    for path in paths:
        memory.pipe_file(f"/many/{path.name}", path.read_bytes())
    with served(home / "new" / "one") as web:
        listed = [*(f"{web}/{path.name}" for path in paths), f"{web}/gone.png"]
        (tmp_path / "list.csv").write_text("\n".join(["uri", *listed]))
        out, answers = tmp_path / "out", tmp_path / "answers.jsonl"
        assert glocal("predict", home / "digits.glocal", tmp_path / "list.csv", "-o", out, "--workers", 1)[0] == 1
    assert glocal("predict", home / "digits.glocal", "memory://many", "--jsonl", answers)[0] == 0
    *found, gone = rows(out)
    assert gone["uri"] == listed[-1]
    assert "404" in gone["error"]
    stored = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [each["path"] for each in stored] == [f"memory:///many/{path.name}" for path in paths]
    for each in (*found, *stored):
        answer = expected[paths.index(home / "new" / "one" / Path(each.get("uri") or each["path"]).name)]
        assert each["label"] == answer.label
        assert relative(answer.open_score, each["open_score"]) < TOLERANCE


def test_what_is_refused_before_anything_is_loaded(home: Path, tmp_path: Path, glocal: Command) -> None:
    file, photos, out = home / "digits.glocal", home / "new", tmp_path / "out.parquet"
    for words in (
        ("predict", file, "-o", out),
        ("predict", file, photos, "--vectors", "x.parquet", "-o", out),
        ("predict", file, photos, "--vectors", "x.parquet"),
        ("predict", file, photos, "-o", out, "--csv", tmp_path / "x.csv"),
        ("predict", file, photos, "--engine", "ray"),
        ("predict", file, photos, "-o", out, "--explain", tmp_path),
        ("predict", file, tmp_path / "gone", "-o", out),
        ("predict", file, tmp_path / "*.gif", "-o", out),
        ("predict", file, "--vectors", tmp_path / "gone", "-o", out),
        ("predict", tmp_path / "gone.glocal", photos, "-o", out),
        ("embed", file, tmp_path / "gone", "-o", out),
        ("similar", tmp_path / "gone", photos),
        ("similar", photos, photos / "one" / "040.png"),
    ):
        one_sentence(glocal(*words))
    assert not out.exists()
