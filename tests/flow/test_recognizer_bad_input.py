"""Thirty kinds of bad input at enroll and predict: a clear sentence each, and no half-written file.

"enroll" cases work on a folder of two good classes that each spoils in its own way; "predict" cases on a good
recognizer.  What is refused ends with exit code 2 and one sentence (its words are listed here); a few kinds are
taken as they are, and then something is said about them or nothing need be.
"""

from __future__ import annotations

import errno
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

from converted import model_file
from photos import recognizer, write, write_classes
from pictures import png_claiming, write_file


class Place(NamedTuple):
    root: Path  # photos/zero, photos/one are good
    monkeypatch: pytest.MonkeyPatch

    @property
    def photos(self) -> Path:
        return self.root / "photos"


class Case(NamedTuple):
    name: str
    spoil: Callable[[Place], list[object]]  # -> the words of the command
    says: str  # in what is printed
    refused: bool = True


def enroll(place: Place, *more: object, out: str = "out.glocal") -> list[object]:
    return ["enroll", place.photos, "-o", place.root / out, "--model", model_file(), "--device", "cpu", *more]


def predict(place: Place, *more: object) -> list[object]:
    return ["predict", place.root / "good.glocal", *more, "--csv", place.root / "out.csv", "--device", "cpu"]


def png(side: int) -> bytes:
    Image.effect_noise((side, side), 50).convert("1").save(buffer := io.BytesIO(), "PNG")
    return buffer.getvalue()


def spoiled(spoil: Callable[[Path], object], *, alone: bool = False) -> Callable[[Place], list[object]]:
    """The folder of photos changed; ``alone``: when the good classes are gone."""

    def enroll_it(place: Place) -> list[object]:
        if alone:
            shutil.rmtree(place.photos)
        spoil(place.photos)
        return enroll(place)

    return enroll_it


def add_file(name: str, content: bytes) -> Callable[[Place], list[object]]:
    return spoiled(lambda photos: write_file(photos / name, content))


def add_class(name: str) -> Callable[[Place], list[object]]:
    return spoiled(lambda photos: write(photos / name, "two", 0, 3))


def cannot_write(part: str, error: OSError) -> Callable[[Place], list[object]]:
    """As the system says it; root may write everywhere, so the refusal itself is played."""

    def refuse(*args: object, **how: object) -> None:
        raise error

    def spoil(place: Place) -> list[object]:
        place.monkeypatch.setattr(f"zipfile.{part}", refuse)
        return enroll(place)

    return spoil


def out_in_a_file(place: Place) -> list[object]:
    (place.root / "note.txt").write_text("x")
    return enroll(place, out="note.txt/out.glocal")


def empty_folder(place: Place) -> list[object]:
    (place.root / "nothing").mkdir()
    return predict(place, place.root / "nothing")


def answers_in_a_folder(place: Place) -> list[object]:
    (answers := place.root / "answers.jsonl").mkdir()
    return [*predict(place, place.photos)[:3], "--jsonl", answers]


def bad_picture(place: Place) -> list[object]:
    (place.root / "bad.png").write_text("x")
    return predict(place, place.root / "bad.png")


def interrupted(place: Place) -> list[object]:
    (place.root / "out.csv.partial").write_text("x")
    return predict(place, place.photos)


def odd_name(place: Place) -> list[object]:
    return predict(place, *write(place.root / "new \n=1+1,\"'", "one", 9, 10, prefix="名前 ü "))


CASES = [
    Case("no such folder", lambda p: ["enroll", p.root / "none", "-o", p.root / "out.glocal"], "no such folder"),
    Case("a file as folder", lambda p: ["enroll", p.root / "good.glocal", "-o", p.root / "out.glocal"], "not a folder"),
    Case("empty folder", spoiled(Path.mkdir, alone=True), "no pictures and no class folders in it"),
    Case(
        "pictures without class folders",
        spoiled(lambda photos: write(photos, "one", 0, 3), alone=True),
        "put the pictures of each class into a folder",
    ),
    Case("class folder without pictures", add_file("two/note.txt", b"x"), "class 'two' has no picture"),
    Case(
        "folders in class folders",
        spoiled(lambda photos: write_classes(photos / "round", ["six", "nine"], 0, 3)),
        "if these are the classes",
        refused=False,
    ),
    Case("class named unknown", add_class("unknown"), "3 photos in unknown/ are known unknowns", refused=False),
    Case("two classes that differ in case", add_class("Zero"), "differ only in upper and lower case"),
    Case("class with blanks around it", add_class(" two"), "without blanks around it"),
    Case("class named a\\x", add_class("a\\x"), "must not be a path"),
    Case("class named ../x", lambda p: ["add", p.root / "good.glocal", "../x", p.photos], "must not be a path"),
    Case("class with a line break", add_class("tw\no"), "one line of visible letters"),
    Case("very long class name", add_class("x" * 201), "at most 200 characters"),
    Case("unicode class name", add_class("größe 螺栓 🙂"), "3 classes", refused=False),
    Case("0-byte file", add_file("one/empty.jpg", b""), "the file is empty (0 bytes)"),
    Case("text as picture", add_file("one/text.png", b"Dear diary"), "not a picture in any format"),
    Case("truncated picture", add_file("one/half.png", png(64)[:300]), "damaged, truncated"),
    Case(
        "folder as picture",
        spoiled(lambda photos: (photos / "one" / "folder.png").mkdir()),
        "2 classes, 6 photos",
        refused=False,
    ),
    Case(
        "link to nowhere",
        spoiled(lambda photos: (photos / "one" / "link.png").symlink_to("nowhere.png")),
        "a link that leads nowhere",
    ),
    Case(
        "decompression bomb",
        add_file("one/huge.png", png_claiming(12_000, 12_000)),
        "the limit against decompression bombs",
    ),
    Case("tiny picture", add_file("one/dot.png", png(3)), "at least 8 pixels"),
    Case(
        "same photo in two classes",
        spoiled(lambda photos: shutil.copy(photos / "zero" / "000.png", photos / "one" / "copy.png")),
        "are the same picture",
    ),
    Case("no such model", lambda p: enroll(p, "--model", "photos-gle"), "nor a shipped model"),
    Case("promise out of range", lambda p: enroll(p, "--target-rate", "5"), "a share between 0.0001 and 0.9999"),
    Case("known unknowns promise", lambda p: enroll(p, "--with-unknown", "5"), "with_unknown must be a share"),
    Case("no such unknowns", lambda p: enroll(p, "--unknown", "nowhere", "--skip-bad"), "nowhere"),
    Case("no such score", lambda p: enroll(p, "--score", "hope"), "has the open scores"),
    Case("output is a folder", lambda p: enroll(p, out="photos"), "is a folder; name a file"),
    Case("output below a file", out_in_a_file, "is a file, not a folder"),
    Case(
        "full disk",
        cannot_write("ZipFile.writestr", OSError(errno.ENOSPC, "No space left on device")),
        "No space left on device",
    ),
    Case(
        "no write permission",
        cannot_write("ZipFile", PermissionError(errno.EACCES, "Permission denied")),
        "Permission denied",
    ),
    Case("predict: no such picture", lambda p: predict(p, p.root / "none.jpg"), "no such file or folder"),
    Case("predict: empty folder", empty_folder, "no picture in this folder or below it"),
    Case("predict: answers are a folder", answers_in_a_folder, "answers.jsonl/parts.jsonl"),
    Case("predict: bad picture", bad_picture, "not a picture in any format"),
    Case("predict: a name that is no name", odd_name, "1 of 1 pictures answered", refused=False),
    Case("predict: no such recognizer", lambda p: ["predict", p.root / "no.glocal", p.photos], "there is no such file"),
    Case("predict: an interrupted run", interrupted, "continue it with --resume, or write over it with --force"),
    Case("predict: resume what", lambda p: [*predict(p, p.photos)[:3], "--resume"], "--resume is about --csv"),
]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of good photos, and a recognizer of them; every test gets a copy."""
    root = tmp_path_factory.mktemp("good")
    write_classes(root / "photos", ["zero", "one"], 0, 3)
    recognizer({"zero": 3, "one": 3}).save(root / "good.glocal")
    return root


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input(case: Case, good: Path, tmp_path: Path, glocal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    words = case.spoil(Place(tmp_path, monkeypatch))
    before = set(tmp_path.rglob("*"))
    code, out, err = glocal(*words)
    text = " ".join((out + err).split())
    assert case.says in text
    assert "Traceback" not in text
    new = {path.name for path in set(tmp_path.rglob("*")) - before}
    if case.refused:
        assert (code, out, err[:8]) == (2, "", "glocal: ")
        # A picture that cannot be used is an answer too, and the file of answers is whole.
        assert new <= ({"out.csv"} if "bad picture" in case.name else set())
    else:
        assert (code, new <= {"out.glocal", "out.csv"}) == (0, True)


EVIL = "\x1b]0;owned\x07\x1b[2J\u202e"  # escapes that would move the cursor, or worse
ESCAPES = {"\x1b", "\x07", "\u202e"}


def test_no_file_speaks_to_the_terminal(good: Path, tmp_path: Path, glocal: Any) -> None:
    """By versions, models, photo names and refusals."""
    path = tmp_path / "digits.glocal"
    with zipfile.ZipFile(good / "good.glocal") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"])
    manifest |= {"version": EVIL, "identity": EVIL}
    manifest["model"]["encoder"]["name"] = manifest["model"]["head"]["name"] = EVIL
    manifest["classes"][0]["photos"][0]["name"] = EVIL
    said = ""
    for more in ({}, {"schema_version": 99}, {"format": EVIL}, {"surprise": EVIL}):
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in (members | {"manifest.json": json.dumps(manifest | more).encode()}).items():
                archive.writestr(name, data)
        for command, *rest in (["inspect"], ["classes"], ["threshold"], ["remove", "nobody"]):
            said += "".join(glocal(command, path, *rest)[1:])
    assert "glocal:" in said
    assert not ESCAPES & {*said}


def test_no_photo_speaks_to_the_terminal(good: Path, tmp_path: Path, glocal: Any) -> None:
    """By its name, as a photo that is answered, that cannot be read, and that is the worst of a check."""
    file = good / "good.glocal"
    folder = write_classes(tmp_path / "photos", ("zero", "one"), 20, 23)
    for photo in [*folder.rglob("*.png")]:
        photo.rename(photo.with_name(f"{EVIL}{photo.name}"))
    shutil.move(next((folder / "zero").iterdir()), folder / "one" / f"{EVIL}0.png")  # a mistake, which a check shows
    (folder / "one" / f"{EVIL}.png").write_bytes(b"no picture")
    out = tmp_path / f"{EVIL}.glocal"
    sizes = ["--way", "1", "--unknown-way", "1", "--shot", "1", "--query", "1", "--tasks", "2"]
    for words in (
        ["predict", file, folder],
        ["check", file, folder],
        ["enroll", folder, "-o", out, "--model", model_file(), "--device", "cpu", "--skip-bad"],
        ["rename", out, "one", "uno"],
        ["inspect", tmp_path / f"{EVIL}.none"],
        ["evaluate", "embedded-gel", "--dataset", folder, "--split", "all", "--skip-bad", *sizes],
    ):
        said = "".join(glocal(*words)[1:])
        assert "owned" in said, words
        assert not ESCAPES & {*said}, words
    assert out.exists()


def test_add_leaves_out_what_it_cannot_read_when_asked_to(good: Path, tmp_path: Path, glocal: Any) -> None:
    file = shutil.copy(good / "good.glocal", tmp_path / "own.glocal")
    photos = write(tmp_path / "six", "six", 0, 3)
    (tmp_path / "six" / "bad.png").write_bytes(b"no picture")
    before = file.read_bytes()
    code, _, err = glocal("add", file, "six", tmp_path / "six", "--device", "cpu")
    assert (code, "--skip-bad" in err, file.read_bytes() == before) == (2, True, True), err
    code, _, err = glocal("add", file, "six", tmp_path / "six", "--skip-bad", "--device", "cpu")
    assert (code, "bad.png" in err) == (0, True), err
    assert len(json.loads(glocal("classes", file, "--json")[1])["six"]) == len(photos)
