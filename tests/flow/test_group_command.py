"""From unknown photos to a new class, and which photos to label: the commands, the library and Review."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from converted import model_file
from glocal.cli.main import app
from glocal.common.errors import GlocalError
from glocal.recognizer import Recognizer
from photos import recognizer, write
from refusal import refused
from serving import client, ok, teach, uploads

CPU = ("--device", "cpu")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """digits.glocal knows zero, one and two; new/ holds ones, sixes and sevens, of which one is there twice."""
    home = tmp_path_factory.mktemp("groups")
    recognizer().save(home / "digits.glocal")
    for word in ("one", "six", "seven"):
        write(home / "new" / word, word, 40, 46)
    shutil.copy(home / "new/six/040.png", home / "new/again.png")
    (home / "new" / "bad.png").write_bytes(b"junk")
    return home


def glocal(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_group_becomes_a_class(home: Path, tmp_path: Path) -> None:
    file, out = Path(shutil.copy(home / "digits.glocal", tmp_path)), tmp_path / "groups"
    done = glocal("group", file, home / "new", "--out", out, "--json", *CPU)
    assert done.exit_code == 0, done.output
    assert "bad.png" in done.stderr
    result = json.loads(done.stdout)
    assert result["photos"] == 20
    assert result["unknown"] == sum(map(len, result["groups"].values())) + len(result["singles"])
    sizes = [len(some) for some in result["groups"].values()]
    assert sizes == sorted(sizes, reverse=True)
    assert next(iter(result["groups"])) == "01"
    [of_both] = [some for some in result["groups"].values() if str(home / "new/again.png") in some]
    assert str(home / "new/six/040.png") in of_both  # the same photo is in the same group

    with (out / "groups.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["path"] for row in rows if row["group"] == "01"] == result["groups"]["01"]
    assert {row["path"] for row in rows if row["group"] == "singles"} == set(result["singles"])
    for row in rows:
        assert (out / row["file"]).read_bytes() == Path(row["path"]).read_bytes()
    with Image.open(out / "sheet.jpg") as sheet:
        assert sheet.height >= 100 * len(sizes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.glocal", "groups"]  # nothing half is left

    asked = glocal("predict", file, home / "new", "--group", "--csv", tmp_path / "answers.csv", *CPU)
    assert f"group 1: {', '.join(result['groups']['01'])}\n" in asked.stderr
    before = Recognizer.load(file, device="cpu").group([row["path"] for row in rows])
    assert [[each.path for each in some] for some in before if len(some) > 1] == list(result["groups"].values())
    assert glocal("add", file, "new thing", out / "01", *CPU).exit_code == 0
    taught = Recognizer.load(file, device="cpu")
    assert [each.label for each in taught.predict(out / "01")] == ["new thing"] * sizes[0]


def test_links_lead_to_the_photos(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "groups"
    out.mkdir()  # an empty folder may be there
    assert glocal("group", home / "digits.glocal", home / "new", "-o", out, "--link", *CPU).exit_code == 0
    links = list(out.glob("*/*.png"))
    assert links
    assert all(path.is_symlink() and path.resolve().is_relative_to(home) for path in links)


def test_what_cannot_be_grouped_is_a_sentence_and_writes_nothing(home: Path, tmp_path: Path) -> None:
    file, out = home / "digits.glocal", tmp_path / "groups"
    known = recognizer()
    known.set_threshold(1e6)
    known.save(tmp_path / "known.glocal")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"junk")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept.txt").write_text("mine")
    (tmp_path / "link").symlink_to("empty")
    cases = [
        ((tmp_path / "known.glocal", home / "new/one", "-o", out), "nothing-unknown", "6"),
        ((file, tmp_path / "empty", "-o", out), "error", "empty"),
        ((file, tmp_path / "bad", "-o", out), "no-photos", "1 photo"),
        ((file, home / "new", "-o", tmp_path / "full"), "file-exists", "full"),
        ((file, home / "new", "-o", tmp_path / "link"), "file-exists", "link"),
        ((file, tmp_path / "gone", "-o", out), "no-file", "gone"),
    ]
    for words, code, said in cases:
        error = glocal("group", *words, *CPU).exception
        assert isinstance(error, GlocalError), words
        assert said in str(error)
        assert error.code == code or code == "error"
        assert not out.exists()
    assert (tmp_path / "full" / "kept.txt").read_text() == "mine"
    assert not list(tmp_path.glob(".*"))


def test_photos_to_label_next(home: Path, tmp_path: Path) -> None:
    file = home / "digits.glocal"
    listed = json.loads(glocal("suggest", file, home / "new", "-n", 4, "--json", *CPU).stdout)
    expected = recognizer().suggest([path for path in sorted((home / "new").rglob("*.png")) if path.stem != "bad"], 4)
    assert {each["path"] for each in listed} == {each.path for each in expected}
    assert len({each["path"] for each in listed}) == 4
    assert all(each["label"] in ("zero", "one", "two", "unknown") for each in listed)
    first = json.loads(glocal("suggest", home / "new", "-n", 3, "--json", *CPU).stdout)
    assert len({Path(each["path"]).parent.name for each in first}) >= 2  # they cover the folder
    lines = glocal("suggest", home / "new", "-n", 3, *CPU).stdout.splitlines()
    assert lines == [each["path"] for each in first]
    assert "after" in str(glocal("suggest", file, *CPU).exception)
    (tmp_path / "empty").mkdir()
    assert isinstance(glocal("suggest", tmp_path / "empty", *CPU).exception, GlocalError)


def test_an_unreadable_photo_is_an_error_of_the_library(home: Path) -> None:
    with refused("bad-picture", "bad.png"):
        recognizer().group(home / "new")


def test_review_groups_as_the_library_does(home: Path, tmp_path: Path) -> None:
    with client(tmp_path / "page.glocal", model=str(model_file())) as asking:
        teach(asking, ("zero", "one", "two"), 5)
        for word in ("six", "seven", "one"):
            ok(asking.post("/predict", files=uploads(word, 40, 46)))
        review = ok(asking.get("/review"))
        sizes = [each["n"] for each in review["groups"]]
        assert sizes == sorted(sizes, reverse=True)
        unknown = sorted((home / "new").rglob("0*.png"))
        assert sizes == [len(some) for some in recognizer().group(unknown)]
        suggested = [each["id"] for each in review["next"]]
        assert len(set(suggested)) == 5
        ok(asking.post(f"/review/queries/{suggested[0]}", json={"class": "six"}))
        assert suggested[0] not in {each["id"] for each in ok(asking.get("/review"))["next"]}
