"""Files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from glocal_runtime.files import replacing, write_text


def test_write_text_makes_folders_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "note.txt"
    write_text(target, "naïve")
    write_text(str(target), "Ωμέγα")
    assert target.read_bytes() == "Ωμέγα".encode()
    assert [path.name for path in target.parent.iterdir()] == ["note.txt"]


def test_the_old_content_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "note.txt"
    target.write_text("old")
    with replacing(target) as partial:
        partial.write_text("new")
        assert target.read_text() == "old"
        assert partial.parent == tmp_path  # the same file system, or the rename would not be one step
    assert target.read_text() == "new"


def test_a_failure_half_way_keeps_the_old_content_and_removes_the_half(tmp_path: Path) -> None:
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


def test_a_folder_in_the_way_is_an_error_and_nothing_stays_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_text(tmp_path / "taken", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_name_as_long_as_the_system_allows(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 255)
    write_text(target, "x")
    assert target.read_text() == "x"
