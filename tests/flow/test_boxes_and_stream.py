"""`--boxes` of the commands, `predict --sort`, `--stream` and `--fail-on-unknown`."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glocal.recognizer import Recognizer
from glocal.recognizer.photos.images import decode
from photos import recognizer, some, write

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def file(home: Path) -> Path:
    recognizer().save(home / "digits.glocal")
    return home / "digits.glocal"


def strip(path: Path, *digits: tuple[str, int]) -> Path:
    """Digits beside each other, each in the middle of a field twice its size."""
    fields = [np.pad(some(word, i, i + 1)[0], ((16, 16), (16, 16), (0, 0)), mode="edge") for word, i in digits]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.concatenate(fields, axis=1)).save(path)
    return path


@pytest.fixture
def strips(tmp_path: Path) -> Path:
    """photos/a.png shows a one, a two and a six, photos/b.png a two; photos/c.png nothing."""
    strip(tmp_path / "photos" / "a.png", ("one", 20), ("two", 20), ("six", 20))
    strip(tmp_path / "photos" / "b.png", ("two", 21))
    strip(tmp_path / "photos" / "c.png", ("six", 21))
    return tmp_path / "photos"


def detection(place: int, across: int, confidence: float = 0.9) -> dict[str, object]:
    box = [(64 * place + 18) / (64 * across), 18 / 64, 28 / (64 * across), 28 / 64]
    return {"category": "1", "conf": confidence, "bbox": box}


@pytest.fixture
def megadetector(strips: Path) -> Path:
    content = {
        "info": {"format_version": "1.6"},
        "detection_categories": {"1": "animal", "2": "person", "3": "vehicle"},
        "images": [
            {"file": "a.png", "detections": [detection(0, 3), detection(1, 3, 0.1), detection(2, 3)]},
            {"file": "b.png", "detections": [detection(0, 1)]},
            {"file": "c.png", "detections": []},
        ],
    }
    path = strips.parent / "md.json"
    path.write_text(json.dumps(content))
    return path


def answers(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="") as rows:
        return {Path(row["path"]).name: row for row in csv.DictReader(rows)}


def test_regions_are_answered_sorted_drawn_and_written_back(
    glocal: Command, file: Path, strips: Path, megadetector: Path
) -> None:
    home = strips.parent
    out = (
        "--csv",
        home / "a.csv",
        "--sort",
        home / "sorted",
        "--boxes-out",
        home / "new.json",
        "--explain",
        home / "why",
    )
    code, _, err = glocal("predict", file, strips, "--boxes", megadetector, *out)
    assert code == 0, err
    rows = answers(home / "a.csv")
    assert {name: row["box"] for name, row in rows.items()} == {
        "a.png#1": "18 18 28 28", "a.png#3": "146 18 28 28", "b.png#1": "18 18 28 28",
    }  # fmt: skip
    assert [rows["a.png#1"]["nearest"], rows["b.png#1"]["nearest"]] == ["one", "two"]
    [cut] = (home / "sorted").glob("*/a#3.jpg")
    assert (cut.parent.name, decode(cut).shape) == (rows["a.png#3"]["label"], (32, 32, 3))
    assert {path.stem for path in (home / "sorted").rglob("*.jpg")} == {"a#1", "a#3", "b#1"}
    content = json.loads((home / "new.json").read_text())
    names = content["classification_categories"]
    [one, unsure, six] = content["images"][0]["detections"]
    assert names[one["classifications"][0][0]] == rows["a.png#1"]["label"]
    assert one["classifications"][0][1] == pytest.approx(float(rows["a.png#1"]["probability"]), abs=1e-4)
    assert names[six["classifications"][0][0]] == rows["a.png#3"]["label"]
    assert "classifications" not in unsure
    drawn = sorted((home / "why").glob("*.png"))
    assert len(drawn) == 3
    frame = np.asarray(Image.open(drawn[0]))
    assert (
        (frame == (0xD9, 0x48, 0x0F)).all(axis=2)[430:, :400].any()
    )  # below the query: the whole picture, with the box


def test_a_confidence_chooses_the_regions(glocal: Command, file: Path, strips: Path, megadetector: Path) -> None:
    command = ("predict", file, strips, "--boxes", megadetector, "--json", "--min-confidence")
    code, out, _ = glocal(*command, "0.05")
    assert (code, [each["box"][0] for each in json.loads(out)]) == (0, [18, 82, 146, 18])


def test_a_picture_without_an_entry_is_left_out_and_named(
    glocal: Command, file: Path, strips: Path, megadetector: Path
) -> None:
    strip(strips / "later.png", ("two", 22))
    (strips / "c.png").unlink()
    code, out, err = glocal("predict", file, strips, "--boxes", megadetector, "--json")
    assert (code, len(json.loads(out))) == (0, 3)
    assert "later.png" in err
    assert "c.png" in err
    code, _, err = glocal("predict", file, strips / "later.png", "--boxes", megadetector)
    assert (code, "none of the pictures given is in it" in err) == (2, True)


def test_regions_are_enrolled_and_checked_by_their_labels(glocal: Command, tmp_path: Path) -> None:
    rows = []
    for i in range(6):
        strip(tmp_path / "photos" / f"{i}.png", ("one", i), ("two", i), ("six", i))
        rows += [
            (f"{i}.png", 64 * place + 18, 18, 28, 28, word) for place, word in enumerate(("one", "two", "unknown"))
        ]
    for name, some_rows in (("taught.csv", rows[:9]), ("asked.csv", rows[9:])):
        with (tmp_path / name).open("w", newline="") as out:
            csv.writer(out).writerows([("path", "x", "y", "width", "height", "label"), *some_rows])
    file = tmp_path / "x.glocal"
    code, _, err = glocal("enroll", tmp_path / "photos", "--boxes", tmp_path / "taught.csv", "--out", file)
    assert code == 0, err
    enrolled = Recognizer.load(file)
    assert enrolled.classes == ("one", "two")
    assert [Path(photo.name).name for photo in enrolled.contents.support.photos] == [
        f"{i}.png#{n}" for n in (1, 2) for i in range(3)
    ]
    code, shown, err = glocal("check", file, tmp_path / "photos", "--boxes", tmp_path / "asked.csv", "--json")
    assert code == 0, err
    checked = json.loads(shown)
    assert (checked["pictures"], checked["accuracy"]["n"], checked["caught"]["n"]) == (9, 6, 3)


def test_a_stream_answers_each_path_on_a_line(
    glocal: Command, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [*write(tmp_path, "one", 20, 22), *write(tmp_path, "six", 30, 31), tmp_path / "gone\udcff.png"]
    given = b"\n".join(map(os.fsencode, paths)) + b"\n\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given), "utf-8"))
    code, out, _ = glocal("predict", file, "-", "--stream")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["path"] for line in lines] == [str(path) for path in paths]
    assert [bool(line["error"]) for line in lines] == [False, False, False, True]
    assert [line["label"] for line in lines[:3]] == [each.label for each in recognizer().predict(paths[:3])]
    assert code == 1


def test_unknown_sets_the_exit_code(
    glocal: Command, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "new", "six", 30, 36)
    write(tmp_path / "known", "one", 0, 1)
    assert glocal("predict", file, tmp_path / "new")[0] == 0
    assert glocal("predict", file, tmp_path / "new", "--fail-on-unknown")[0] == 3
    assert glocal("predict", file, tmp_path / "known", "--fail-on-unknown")[0] == 0
    for folder, expected in (("new", 3), ("known", 0)):
        lines = "\n".join(map(str, sorted((tmp_path / folder).iterdir())))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
        assert glocal("predict", file, "-", "--stream", "--fail-on-unknown")[0] == expected


@pytest.mark.parametrize("link", [(), ("--link",)])
def test_sorted_pictures_keep_their_folders_and_stay_where_they_are(
    glocal: Command, file: Path, tmp_path: Path, link: tuple[str, ...]
) -> None:
    write(tmp_path / "new" / "cam1", "one", 20, 22)
    write(tmp_path / "new" / "cam2", "two", 20, 22)
    code, out, _ = glocal("predict", file, tmp_path / "new", "--sort", tmp_path / "out", *link, "--json")
    assert code == 0
    expected = {f"{each['label']}/{Path(each['path']).relative_to(tmp_path / 'new')}" for each in json.loads(out)}
    there = {str(path.relative_to(tmp_path / "out")): path for path in (tmp_path / "out").rglob("*.png")}
    assert there.keys() == expected
    assert all(path.stat().st_nlink == (2 if link else 1) for path in there.values())
    assert len([*(tmp_path / "new").rglob("*.png")]) == 4


def test_no_name_of_a_list_leads_out_of_the_sorted_folder(
    glocal: Command, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "new", "one", 20, 21)
    write(tmp_path / "other", "two", 20, 21)
    (tmp_path / "list.csv").write_text("uri\nnew/../../" + tmp_path.name + "/other/020.png\n")
    code, _, err = glocal("predict", file, "list.csv", "new", "--sort", "deep/er/sorted")
    assert code == 0, err
    assert sorted(path.name for path in (tmp_path / "deep" / "er").iterdir()) == ["sorted"]
    assert len(list((tmp_path / "deep").rglob("*.png"))) == 2


@pytest.mark.parametrize(
    "options",
    [
        ("--stream",),
        ("--boxes-out", "x.json"),
        ("--link",),
        ("--sort", "out", "--csv", "a.csv", "--resume"),
        ("--fail-on-unknown", "--out", "many"),
        ("--boxes", "nowhere.json"),
        ("--sort", "new/sorted"),
    ],
)
def test_what_does_not_go_together_is_refused_and_nothing_is_written(
    glocal: Command, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "new", "one", 20, 21)
    code, _, err = glocal("predict", file, "new", *options)
    assert (code, err.startswith("glocal: "), err.count("\n")) == (2, True, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
