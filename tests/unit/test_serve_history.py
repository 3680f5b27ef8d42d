"""Versions of a file: back and forth, over restarts, kills and other programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import full, killed
from glocal.serve import history
from glocal.serve.history import History
from refusal import refused


def push(versions: History, *texts: str) -> None:
    for text in texts:
        versions.push(text, lambda path, text=text: path.write_text(text) and None)


def copies(file: Path) -> list[str]:
    return sorted(path.read_text() for path in (file.parent / "parts.glocal.history/versions").iterdir())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "parts.glocal"


def test_back_and_forth_to_before_there_was_a_file_also_after_a_restart(file: Path) -> None:
    versions = History(file)
    assert (versions.version, versions.undo_label, versions.redo_label) == (1, None, None)
    push(versions, "one", "two")
    assert (file.read_text(), versions.version, versions.undo_label) == ("two", 3, "two")
    versions.step(-1)
    versions = History(file)
    assert (file.read_text(), versions.undo_label, versions.redo_label) == ("one", "one", "two")
    versions.step(-1)
    assert not file.exists()
    with refused("nothing-to-undo"):
        versions.step(-1)
    versions.step(+1)
    versions.step(+1)
    assert (file.read_text(), versions.version) == ("two", 7)
    with refused("nothing-to-redo"):
        versions.step(+1)


def test_a_file_that_was_there_is_the_first_version(file: Path) -> None:
    file.write_text("first")
    versions = History(file)
    push(versions, "one")
    versions.step(-1)
    assert (file.read_text(), versions.undo_label) == ("first", None)


def test_a_new_change_ends_what_was_undone(file: Path) -> None:
    versions = History(file)
    push(versions, "one", "two", "three")
    versions.step(-1)
    versions.step(-1)
    push(versions, "four")
    assert versions.redo_label is None
    assert copies(file) == ["four", "one"]


def test_it_is_bounded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = History(file)
    push(versions, *map(str, range(history.MOST + 5)))
    assert len(copies(file)) == history.MOST + 1
    for _ in range(history.MOST):
        versions.step(-1)
    assert file.read_text() == "4"
    monkeypatch.setattr(history, "MOST_BYTES", 100)
    push(versions, "x" * 90, "y" * 90)
    assert len(copies(file)) == 2  # one step back there always is


def test_killed_between_the_steps_of_a_change(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is ahead of the file: the file is the truth, and the change can be done again."""
    versions = History(file)
    push(versions, "one")
    monkeypatch.setattr(history, "put", killed)
    with pytest.raises(KeyboardInterrupt):
        push(versions, "two")
    monkeypatch.undo()
    again = History(file)
    assert (file.read_text(), again.undo_label, again.redo_label) == ("one", "one", "two")
    assert again.version > 3
    again.step(+1)
    assert file.read_text() == "two"


def test_killed_before_the_journal(file: Path) -> None:
    push(History(file), "one")
    (file.parent / "parts.glocal.history/versions/00000099.glocal").write_text("nobody knows of it")
    (file.parent / "parts.glocal.history/.3.partial").write_text("half")
    assert History(file).version == 2
    assert copies(file) == ["one"]
    assert not list(file.parent.rglob("*.partial"))


def test_another_program_wrote_the_file(file: Path) -> None:
    versions = History(file)
    push(versions, "one")
    file.write_text("by hand")
    assert not versions.is_current
    again = History(file)
    assert (again.is_current, again.version, again.undo_label) == (True, 3, "a change by another program")
    again.step(-1)
    assert file.read_text() == "one"
    file.unlink()
    gone = History(file)
    assert gone.version > again.version
    gone.step(+1)  # there was none at first, so that is the version it is taken for
    assert file.read_text() == "one"


@pytest.mark.parametrize("journal", ["", "{}", "[1]", '{"schema_version": 1, "version": 1, "at": 7, "entries": []}'])
def test_a_damaged_journal_costs_the_history_and_not_the_file(file: Path, journal: str) -> None:
    push(History(file), "one")
    (file.parent / "parts.glocal.history/journal.json").write_text(journal)
    again = History(file)
    assert (file.read_text(), again.undo_label) == ("one", None)
    push(again, "two")
    again.step(-1)
    assert file.read_text() == "one"


@pytest.mark.parametrize("damage", [b"", b"on", b"onX", None])
def test_a_damaged_copy_replaces_nothing(file: Path, damage: bytes | None) -> None:
    """As a power cut leaves it that the disk was not told to be ready for."""
    versions = History(file)
    push(versions, "one", "two")
    first = file.parent / "parts.glocal.history/versions/00000002.glocal"
    first.unlink() if damage is None else first.write_bytes(damage)
    before = (file.parent / "parts.glocal.history/journal.json").read_bytes()
    with refused("damaged-version", "version 2"):
        versions.step(-1)
    assert file.read_text() == "two"
    assert (file.parent / "parts.glocal.history/journal.json").read_bytes() == before
    push(versions, "three")
    versions.step(-1)
    assert file.read_text() == "two"


def test_a_damaged_copy_of_the_file_that_is_there_is_made_anew(file: Path) -> None:
    push(History(file), "one", "two")
    (file.parent / "parts.glocal.history/versions/00000003.glocal").write_bytes(b"")
    again = History(file)
    again.step(-1)
    again.step(+1)
    assert file.read_text() == "two"


@pytest.mark.parametrize("step", ["save", "copyfile", "write_text", "put"])
@pytest.mark.parametrize("by", [0, -1, +1])
def test_a_full_disk_at_any_step_changes_nothing_and_leaves_no_rest(file: Path, step: str, by: int, monkeypatch):
    versions = History(file)
    push(versions, "one", "two", "three")
    versions.step(-1)

    def change(text: str) -> None:
        save = full if step == "save" and text == "lost" else lambda path: path.write_text(text) and None
        versions.push(text, save) if by == 0 else versions.step(by)

    if step == "save" and by:
        pytest.skip("nothing is saved by a step")
    with monkeypatch.context() as patch:
        if step != "save":
            patch.setattr(history.shutil if step == "copyfile" else history, step, full)
        with pytest.raises(OSError, match="No space"):
            change("lost")
    assert file.read_text() == "two"
    assert not list(file.parent.rglob("*.partial"))
    again = versions if versions.is_current else History(file)
    assert "lost" not in copies(file) or step == "put"
    again.push("later", lambda path: path.write_text("later") and None)
    assert (file.read_text(), again.undo_label) == ("later", "later")


def test_what_another_program_writes_in_the_same_moment_is_kept(file: Path) -> None:
    versions = History(file)
    push(versions, "one")

    def save(path: Path) -> None:
        path.write_text("mine")
        file.write_text("theirs")

    with refused("changed-meanwhile"):
        versions.push("mine", save)
    assert file.read_text() == "theirs"


def test_copies_are_as_private_as_the_file(file: Path) -> None:
    file.write_text("first")
    file.chmod(0o600)
    versions = History(file)
    push(versions, "one")
    versions.step(-1)
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_file_that_was_undone_comes_back_with_its_own_permissions(file: Path, mode: int) -> None:
    versions = History(file)
    push(versions, "one")
    file.chmod(mode)
    versions.step(-1)
    assert not file.exists()
    versions.step(+1)
    assert file.stat().st_mode & 0o777 == mode


def test_what_another_program_writes_while_a_copy_is_made_is_no_version(file: Path, monkeypatch: pytest.MonkeyPatch):
    """The journal would call one content by the fingerprint of another."""
    file.write_text("first")
    copyfile = history.shutil.copyfile

    def late(source: Path, to: Path) -> None:
        file.write_text("theirs")
        copyfile(source, to)

    with monkeypatch.context() as patch:
        patch.setattr(history.shutil, "copyfile", late)
        with refused("changed-meanwhile", str(file)):
            History(file)
    assert copies(file) == []
    assert History(file).is_current
    assert copies(file) == ["theirs"]
