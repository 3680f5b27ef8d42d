"""Versions of a file: back and forth, over restarts, kills and other programs."""

from __future__ import annotations

import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from glocal.serve import history
from glocal.serve.history import History
from refusal import refused


def push(versions: History, *texts: str) -> None:
    for text in texts:
        versions.push(text, lambda path, text=text: path.write_text(text) and None)


def step(versions: History, by: int) -> None:
    with versions.step(by):
        pass


def parts(file: Path) -> dict[str, Path]:
    """By content."""
    return {path.read_text("latin-1"): path for path in (file.parent / "parts.glocal.history/parts").iterdir()}


def copies(file: Path) -> list[str]:
    return sorted(parts(file))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "parts.glocal"


def test_back_and_forth_to_before_there_was_a_file_also_after_a_restart(file: Path) -> None:
    versions = History(file)
    assert (versions.number, versions.undo_label, versions.redo_label) == (1, None, None)
    push(versions, "one", "two")
    assert (file.read_text(), versions.number, versions.undo_label) == ("two", 3, "two")
    step(versions, -1)
    versions = History(file)
    assert (file.read_text(), versions.undo_label, versions.redo_label) == ("one", "one", "two")
    step(versions, -1)
    assert not file.exists()
    with refused("nothing-to-undo"):
        step(versions, -1)
    step(versions, +1)
    step(versions, +1)
    assert (file.read_text(), versions.number) == ("two", 7)
    with refused("nothing-to-redo"):
        step(versions, +1)


def test_files_of_others_stay_where_parts_lead_to_their_folder(file: Path) -> None:
    (file.parent / "mine").mkdir()
    (file.parent / "mine" / "thesis.txt").write_text("mine")
    folder = file.parent / "parts.glocal.history"
    folder.mkdir()
    (folder / "parts").symlink_to("../mine")
    (folder / ".mine.partial").write_text("mine")
    versions = History(file)
    push(versions, "one", "two")
    step(versions, -1)
    assert file.read_text() == "one"
    assert (file.parent / "mine" / "thesis.txt").exists()
    assert (folder / ".mine.partial").exists()


def test_a_new_change_ends_what_was_undone(file: Path) -> None:
    versions = History(file)
    push(versions, "one", "two", "three")
    step(versions, -1)
    step(versions, -1)
    push(versions, "four")
    assert versions.redo_label is None
    assert copies(file) == ["four", "one"]


def test_it_is_bounded(file: Path) -> None:
    versions = History(file)
    push(versions, *map(str, range(history.MOST + 5)))
    assert len(copies(file)) == history.MOST + 1
    for _ in range(history.MOST):
        step(versions, -1)
    assert file.read_text() == "4"


@pytest.mark.parametrize("journal", ["", "{}", "[1]", '{"schema_version": 1, "version": 1, "at": 7, "entries": []}'])
def test_a_damaged_journal_costs_the_history_and_not_the_file(file: Path, journal: str) -> None:
    push(History(file), "one")
    (file.parent / "parts.glocal.history/journal.json").write_text(journal)
    again = History(file)
    assert (file.read_text(), again.undo_label) == ("one", None)
    push(again, "two")
    step(again, -1)
    assert file.read_text() == "one"


@pytest.mark.parametrize("damage", [b"", b"on", b"onX", None])
def test_a_damaged_copy_replaces_nothing(file: Path, damage: bytes | None) -> None:
    """As a power cut leaves it that the disk was not told to be ready for."""
    versions = History(file)
    push(versions, "one", "two")
    first = parts(file)["one"]
    first.unlink() if damage is None else first.write_bytes(damage)
    before = (file.parent / "parts.glocal.history/journal.json").read_bytes()
    with refused("damaged-version"):
        step(versions, -1)
    assert file.read_text() == "two"
    assert (file.parent / "parts.glocal.history/journal.json").read_bytes() == before
    push(versions, "three")
    step(versions, -1)
    assert file.read_text() == "two"


def test_a_damaged_copy_of_the_file_that_is_there_is_made_anew(file: Path) -> None:
    push(History(file), "one", "two")
    parts(file)["two"].write_bytes(b"")
    again = History(file)
    step(again, -1)
    step(again, +1)
    assert file.read_text() == "two"


@pytest.mark.parametrize("members", [1, 3])
def test_what_stays_the_same_in_an_archive_is_kept_once(file: Path, members: int) -> None:
    graph = np.random.default_rng(0).bytes(300_000)
    versions = History(file)

    def save(path: Path, text: str) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in (("graph", graph), *((f"text {i}", f"{text} {i}".encode()) for i in range(members))):
                archive.writestr(zipfile.ZipInfo(name), data)

    whole = []
    for i in range(10):
        versions.push(str(i), partial(save, text=str(i)))
        whole.append(file.read_bytes())
    kept = sum(path.stat().st_size for path in versions.folder.rglob("*") if path.is_file())
    assert len(graph) < kept < 1.2 * len(graph)
    for data in whole[-2::-1]:
        step(versions, -1)
        assert file.read_bytes() == data


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_file_that_was_undone_comes_back_with_its_own_permissions(file: Path, mode: int) -> None:
    versions = History(file)
    push(versions, "one")
    file.chmod(mode)
    step(versions, -1)
    assert not file.exists()
    step(versions, +1)
    assert file.stat().st_mode & 0o777 == mode
