"""Files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import noted
from glocal.common.files import remove, replacing, stamp, write_text
from refusal import refused


def test_write_text_makes_folders_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "note.txt"
    write_text(target, "naïve")
    write_text(str(target), "Ωμέγα")
    assert target.read_bytes() == "Ωμέγα".encode()
    assert [path.name for path in target.parent.iterdir()] == ["note.txt"]
    # A name as long as the system allows.
    target = tmp_path / ("n" * 255)
    write_text(target, "x")
    assert target.read_text() == "x"


def test_the_old_content_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "note.txt"
    target.write_text("old")
    with replacing(target) as partial:
        partial.write_text("new")
        assert target.read_text() == "old"
        assert partial.parent == tmp_path  # the same file system, or the rename would not be one step
    assert target.read_text() == "new"


def test_a_failure_half_way_or_a_folder_in_the_way_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "note.txt"
    target.write_text("old")

    def interrupted() -> None:
        with replacing(target) as partial:
            partial.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_text(tmp_path / "taken", "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["note.txt", "taken"]


def test_a_file_is_on_the_disk_before_it_gets_its_name_and_the_name_before_anybody_is_told(tmp_path: Path, monkeypatch):
    target, done = tmp_path / "note.txt", noted(monkeypatch)
    write_text(target, "kept")
    partial, *rest = done
    assert partial.endswith(".partial")
    assert rest == ["rename", f"sync {tmp_path.name}"]
    done.clear()
    remove(target)
    assert done == [f"sync {tmp_path.name}"]
    done.clear()
    write_text(tmp_path / "new" / "below" / "note.txt", "kept")
    assert done[:2] == ["sync new", f"sync {tmp_path.name}"]
    assert done[-1] == "sync below"


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real/note.txt", tmp_path / "note.txt"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to("real/note.txt")
    with replacing(link) as partial:
        assert partial.stat().st_mode & 0o077 == 0, "open to others while it is written"
        partial.write_text("new")
    assert link.is_symlink()
    assert (real.read_text(), real.stat().st_mode & 0o777) == ("new", 0o600)
    real.chmod(0o674)  # more than the usual mask lets a new file have
    write_text(link, "newer")
    assert real.stat().st_mode & 0o777 == 0o674
    write_text(tmp_path / "fresh", "x")
    (tmp_path / "usual").touch()
    assert (tmp_path / "fresh").stat().st_mode == (tmp_path / "usual").stat().st_mode
    real.unlink()
    write_text(link, "again")  # a link that led nowhere
    assert real.read_text() == "again"


def test_what_another_wrote_since_is_not_written_over(tmp_path: Path) -> None:
    target = tmp_path / "note.txt"
    write_text(target, "old")
    seen = stamp(target)
    with replacing(target, is_current=lambda: stamp(target) == seen) as partial:
        partial.write_text("mine")
    for other in (lambda: write_text(target, "theirs"), target.unlink):
        seen = stamp(target)
        with (
            refused("changed-meanwhile", str(target)),
            replacing(target, is_current=lambda seen=seen: stamp(target) == seen) as partial,  # type: ignore
        ):
            partial.write_text("late")
            other()
        assert not target.exists() or target.read_text() == "theirs"
        assert [path for path in tmp_path.iterdir() if path != target] == []


def test_nobody_elses_file_is_removed(tmp_path: Path) -> None:
    target = tmp_path / "note.txt"
    target.write_text("mine")
    with refused("changed-meanwhile", str(target)):
        remove(target, is_current=lambda: target.read_text() == "theirs")
    assert target.read_text() == "mine"
    remove(target, is_current=lambda: target.read_text() == "mine")
    assert not target.exists()
