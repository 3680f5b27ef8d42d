"""A watched folder: what waits, what is placed where, and what happens when the disk is full or something changes."""

from __future__ import annotations

import csv
import errno
import itertools
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from converted import model_file
from glocal.bulk import places, watch
from glocal.bulk.places import Way, check_apart
from glocal.bulk.watch import Inbox, Looked, Watch
from glocal.common.errors import DataError
from glocal.recognizer import Recognizer
from photos import recognizer, write
from refusal import one_sentence, refused


@pytest.fixture(scope="module")
def file(home: Path) -> Path:
    recognizer(model=model_file("tiny:protonet")).save(home / "digits.glocal")
    return home / "digits.glocal"


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    """Three pictures below two folders; two of them have one name."""
    write(tmp_path / "in" / "cam1", "one", 20, 22)
    write(tmp_path / "in" / "cam2", "two", 20, 21)
    return tmp_path / "in"


def started(file: Path, inbox: Path, **more: Any) -> Watch:
    return Watch(file, inbox, inbox.parent / "out", settle=1.0, device="cpu", **more)


def look(watching: Watch, now: float) -> Looked:
    batches = list(watching.look(now))
    return Looked([row for each in batches for row in each.rows], [line for each in batches for line in each.remarks])


def looked(watching: Watch) -> list[str]:
    """Two looks, far enough apart; the names of what was placed."""
    rows = look(watching, 0.0).rows + look(watching, 5.0).rows
    return [Path(fields["path"]).name for fields in rows]


def recorded(out: Path) -> list[dict[str, str]]:
    with (out / "answers.csv").open(newline="") as rows:
        return list(csv.DictReader(rows))


def placed(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob("*.*") if path.is_file() and path.suffix != ".csv")


def check_each_once(inbox: Path, out: Path, names: set[str], way: Way) -> None:
    """A line and a place for each of the pictures, and nothing else."""
    rows = recorded(out)
    assert Counter(str(Path(fields["path"]).relative_to(inbox)) for fields in rows) == dict.fromkeys(names, 1)
    assert placed(out) == sorted(fields["place"] for fields in rows)
    assert all(Path(fields["place"]).parts[0] == fields["label"] for fields in rows)
    left = {str(path.relative_to(inbox)) for path in inbox.rglob("*.png")}
    assert left == (set() if way is Way.move else names)


@pytest.mark.parametrize("way", list(Way))
def test_each_picture_gets_a_line_and_a_place_by_answer(file: Path, inbox: Path, way: Way) -> None:
    before = {path.read_bytes() for path in inbox.rglob("*.png")}
    names = {"cam1/020.png", "cam1/021.png", "cam2/020.png"}
    out = inbox.parent / "out"
    assert len(looked(started(file, inbox, way=way))) == 3
    check_each_once(inbox, out, names, way)
    assert {(out / fields["place"]).read_bytes() for fields in recorded(out)} == before
    assert {path.stat().st_nlink for path in out.rglob("*.png")} == {2 if way is Way.link else 1}
    assert looked(started(file, inbox, way=way)) == []  # in another process too
    check_each_once(inbox, out, names, way)


def test_a_name_that_is_taken_gets_a_number(file: Path, inbox: Path) -> None:
    """A camera that counts from the beginning again: the picture before it was moved away."""
    watching, out = started(file, inbox, way=Way.move), inbox.parent / "out"
    looked(watching)
    places_before = placed(out)
    again = write(inbox / "cam1", "one", 30, 31)[0].rename(inbox / "cam1" / "020.png")
    content = again.read_bytes()
    first = next(fields for fields in recorded(out) if fields["path"] == str(again))
    look(watching, 10.0)
    [fields] = look(watching, 15.0).rows
    assert fields["place"] == str(
        Path(fields["label"], "cam1", "020-2.png" if fields["label"] == first["label"] else "020.png")
    )
    assert (out / fields["place"]).read_bytes() == content
    assert set(placed(out)) == {*places_before, fields["place"]}


def test_a_file_that_still_grows_waits(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, settle=2.0)
    path = tmp_path / "a.png"
    path.write_bytes(b"begin")
    assert inbox.settled(0.0) == {}
    with path.open("ab") as growing:
        growing.write(b" and on")
    assert inbox.settled(3.0) == inbox.settled(4.0) == {}
    assert [*inbox.settled(5.0)] == [str(path)]
    os.utime(path, (1, 1))
    assert inbox.settled(9.0) == {}


def test_half_a_picture_waits_until_it_is_whole(file: Path, inbox: Path) -> None:
    """A writer that pauses: half of a file, for longer than a file must stay as it is."""
    path = inbox / "cam1" / "020.png"
    content = path.read_bytes()
    path.write_bytes(content[:300])
    watching = started(file, inbox)
    assert sorted(looked(watching)) == ["020.png", "021.png"]
    assert str(path) not in {fields["path"] for fields in recorded(inbox.parent / "out")}
    path.write_bytes(content)
    look(watching, 10.0)
    assert [fields["path"] for fields in look(watching, 15.0).rows] == [str(path)]
    check_each_once(inbox, inbox.parent / "out", {"cam1/020.png", "cam1/021.png", "cam2/020.png"}, Way.copy)


def test_what_never_becomes_a_picture_is_recorded_and_stays(file: Path, inbox: Path) -> None:
    path = inbox / "cam1" / "020.png"
    path.write_bytes(b"no picture")
    os.utime(path, (1, 1))
    watching = started(file, inbox, way=Way.move)
    assert len(looked(watching)) == 3
    [fields] = [fields for fields in recorded(inbox.parent / "out") if fields["error"]]
    assert (fields["path"], fields["place"], fields["label"]) == (str(path), "", "")
    assert [*inbox.rglob("*.png")] == [path]
    assert looked(started(file, inbox, way=Way.move)) == []


@contextmanager
def at_step(step: int, what: Callable[[], None]) -> Iterator[Iterator[int]]:
    """Do something in the place of the step-th change of the disk."""
    steps = itertools.count()

    def stepwise(change: Any) -> Any:
        def changed(*given: Any, **named: Any) -> Any:
            if next(steps) == step:
                what()
            return change(*given, **named)

        return changed

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((os, "fsync"), (os, "replace"), (os, "link"), (shutil, "copy2")):
            patch.setattr(owner, name, stepwise(getattr(owner, name)))
        yield steps


def full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("way", list(Way))
def test_a_disk_that_is_full_at_any_step_loses_nothing(file: Path, inbox: Path, way: Way) -> None:
    original = shutil.copytree(inbox, inbox.parent / "original")
    for step in itertools.count():
        for folder in (inbox, inbox.parent / "out"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original, inbox)
        watching = started(file, inbox, way=way)
        look(watching, 0.0)
        with at_step(step, full) as steps:
            with suppress(DataError):  # where a link fails, there is another way
                look(watching, 5.0)
            reached = next(steps) > step
        look(watching, 6.0)
        check_each_once(inbox, inbox.parent / "out", {"cam1/020.png", "cam1/021.png", "cam2/020.png"}, way)
        if not reached:
            break
    assert step > 20


def test_a_picture_that_changes_after_its_answer_is_answered_again(
    file: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = inbox / "cam1" / "020.png"
    [other] = write(inbox.parent, "zero", 20, 21)
    put = places.put

    def put_late(source: Path, target: Path, *rest: Any) -> None:
        if source == path and other.exists():
            other.replace(path)
        put(source, target, *rest)

    monkeypatch.setattr(watch, "put", put_late)
    watching, out = started(file, inbox), inbox.parent / "out"
    assert sorted(looked(watching)) == ["020.png", "021.png"]
    look(watching, 10.0)
    [fields] = look(watching, 15.0).rows
    assert fields["path"] == str(path)
    assert (out / fields["place"]).read_bytes() == path.read_bytes()
    check_each_once(inbox, out, {"cam1/020.png", "cam1/021.png", "cam2/020.png"}, Way.copy)


def test_regions_are_cut_out_once_the_file_names_their_picture(file: Path, inbox: Path) -> None:
    boxes = inbox.parent / "boxes.csv"
    boxes.write_text("path,x,y,width,height\ncam1/020.png,2,2,20,20\ncam1/020.png,4,4,24,24\n")
    watching, out = started(file, inbox, boxes=boxes), inbox.parent / "out"
    looked(watching)
    with boxes.open("a") as more:
        more.write("cam2/020.png,2,2,20,20\n")
    look(watching, 10.0)
    rows = recorded(out)
    assert [fields["path"].removeprefix(f"{inbox}/") for fields in rows] == [
        "cam1/020.png#1", "cam1/020.png#2", "cam2/020.png#1",
    ]  # fmt: skip
    assert [fields["box"] for fields in rows] == ["2 2 20 20", "4 4 24 24", "2 2 20 20"]
    assert placed(out) == sorted(fields["place"] for fields in rows)
    assert [Path(fields["place"]).name for fields in rows] == ["020#1.jpg", "020#2.jpg", "020#1.jpg"]
    assert look(watching, 20.0).rows == []


def test_a_recognizer_that_was_changed_answers_what_comes_after(file: Path, inbox: Path) -> None:
    own = shutil.copy(file, inbox.parent / "own.glocal")
    watching = started(own, inbox)
    looked(watching)
    before = watching.recognizer.contents.identity
    recognizer({"one": 5, "six": 5}, model=model_file("tiny:protonet")).save(own)
    write(inbox / "cam3", "six", 20, 21)
    look(watching, 10.0)
    [fields] = look(watching, 15.0).rows
    assert fields["recognizer"] == watching.recognizer.contents.identity != before
    assert "six" in watching.recognizer.classes
    own.write_bytes(b"half")
    assert len(look(watching, 20.0).remarks) == 1
    assert look(watching, 25.0).remarks == []


def test_folders_that_lie_in_each_other_are_refused(inbox: Path) -> None:
    for out in (inbox, inbox / "sorted", inbox.parent):
        with pytest.raises(DataError, match="lie in each other"):
            check_apart(inbox, out)


def test_links_that_lead_to_themselves_are_no_pictures_and_others_are_followed(file: Path, inbox: Path) -> None:
    (inbox / "loop.png").symlink_to("loop.png")
    (inbox / "kept").mkdir()
    kept = write(inbox.parent / "kept", "one", 25, 26)[0]
    (inbox / "link.png").symlink_to(os.path.relpath(kept, inbox))
    watching = started(file, inbox, way=Way.move)
    assert "link.png" in looked(watching)
    [place] = [each for each in placed(inbox.parent / "out") if each.endswith("link.png")]
    assert (inbox.parent / "out" / place).read_bytes() == kept.read_bytes()
    assert not (inbox / "link.png").is_symlink()


def test_a_class_cannot_be_called_as_the_record(file: Path, inbox: Path) -> None:
    own = inbox.parent / "own.glocal"
    taught = Recognizer.load(file)
    taught.rename_class("one", "Answers.csv")
    taught.save(own)
    with refused("class-name", "'Answers.csv'"):
        started(own, inbox)
    assert not (inbox.parent / "out").exists()


@pytest.mark.parametrize("journal", ["{", "[]", '{"size": 0, "rows": [{"place": "../x"}]}'])
def test_a_damaged_journal_is_a_sentence_and_nothing_is_done(file: Path, inbox: Path, journal: str) -> None:
    looked(started(file, inbox))
    before = recorded(inbox.parent / "out")
    (inbox.parent / "out" / ".journal.json").write_text(journal)
    with refused("damaged-file", ".journal.json"):
        started(file, inbox)
    assert recorded(inbox.parent / "out") == before


def test_the_journal_leads_out_of_no_folder(file: Path, inbox: Path) -> None:
    looked(started(file, inbox))
    out, picture = inbox.parent / "out", inbox.parent / "mine.png"
    picture.write_bytes(b"mine")
    row = recorded(out)[0] | {"path": str(picture), "place": "../moved.png", "stamp": watch.stamped(picture)}
    size = (out / "answers.csv").stat().st_size
    (out / ".journal.json").write_text(json.dumps({"size": size, "rows": [row]}))
    with refused("damaged-file", "leads out"):
        started(file, inbox)
    assert picture.exists()


def test_a_file_is_no_folder_that_fills(
    glocal: Callable[..., tuple[int, str, str]], file: Path, tmp_path: Path
) -> None:
    one_sentence(glocal("watch", file, file, "--out", tmp_path / "out", "--once"), file.name, "no folder")
    assert not (tmp_path / "out").exists()


def test_a_picture_that_may_not_leave_its_folder_is_named(
    file: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def protected(path: Path, unlink: Any = os.unlink, **more: Any) -> None:
        if inbox in Path(path).parents:
            raise PermissionError(errno.EACCES, "Permission denied")
        unlink(path, **more)

    watching = started(file, inbox, way=Way.move)
    with monkeypatch.context() as patch, refused("not-written", str(inbox / "cam1" / "020.png")):
        patch.setattr(os, "unlink", protected)
        looked(watching)
    assert len(look(watching, 9.0).rows) == 3
    assert not list(inbox.rglob("*.png"))


def test_names_at_the_limit_of_the_disk_are_cut(file: Path, inbox: Path) -> None:
    own, name = inbox.parent / "own.glocal", "x" * 251 + ".png"
    taught = Recognizer.load(file)
    taught.rename_class("one", "\u8a9e" * 150)
    taught.save(own)
    picture = write(inbox, "one", 20, 21)[0].rename(inbox / name)
    watching = started(own, inbox)
    assert name in looked(watching)
    shutil.copy(write(inbox.parent / "new", "one", 24, 25)[0], picture)
    look(watching, 10.0)
    [again] = look(watching, 15.0).rows
    assert again["place"] == "\u8a9e" * 85 + "/" + "x" * 249 + "-2.png"
    assert (inbox.parent / "out" / again["place"]).read_bytes() == picture.read_bytes()


def test_hidden_files_of_others_stay(file: Path, inbox: Path) -> None:
    out = inbox.parent / "out"
    (out / ".folder.partial").mkdir(parents=True)
    (out / ".download.partial").write_text("mine")
    looked(started(file, inbox))
    assert (out / ".download.partial").exists()


def test_another_csv_is_not_written_over(file: Path, inbox: Path) -> None:
    other = inbox.parent / "out" / "answers.csv"
    other.parent.mkdir()
    other.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="not from `glocal watch`"):
        started(file, inbox)
    assert other.read_text() == "a,b\n1,2\n"
