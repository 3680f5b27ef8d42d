"""Rates with intervals, and the check on labelled pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from glocal.cli.printing import check_report
from glocal.recognizer.diagnosis.check import Rate, check
from photos import recognizer, write, write_classes
from refusal import refused


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (0, 0, 0.0, 1.0),
        (0, 10, 0.0, 0.27753),
        (1, 20, 0.00888, 0.23613),
        (50, 100, 0.40383, 0.59617),
        (10, 10, 0.72247, 1.0),
    ],
)
def test_wilson_intervals(k: int, n: int, low: float, high: float) -> None:
    assert Rate(k, n).interval == pytest.approx((low, high), abs=1e-5)
    assert str(Rate(1, 20)) == "5.0 % (1 of 20; 95 % interval 0.9 to 23.6 %)"
    assert str(Rate(0, 0)) == "no pictures"


def test_a_labelled_folder(tmp_path: Path) -> None:
    who = recognizer()
    write_classes(tmp_path, ["zero", "two"], 20, 40)
    write(tmp_path / "unknown", "six", 20, 40)
    write(tmp_path / "zeroo", "seven", 20, 25)
    (tmp_path / "two" / "bad.png").write_text("x")
    seen: list[tuple[int, int]] = []
    found = check(who, tmp_path, progress=lambda done, total: seen.append((done, total)))
    answers = {word: [each.label for each in who.predict(tmp_path / word)] for word in ("zero", "unknown", "zeroo")}
    caught = answers["unknown"].count("unknown") + answers["zeroo"].count("unknown")
    assert (found.caught.k, found.caught.n) == (caught, 25)
    assert found.accuracy.n == found.false_unknown.n == 40
    table = found.confusion()
    assert list(table) == ["zero", "two", "unknown"]
    assert table["zero"]["zero"] == answers["zero"].count("zero")
    assert sum(sum(row.values()) for row in table.values()) == 65
    assert found.accuracy.k == table["zero"]["zero"] + table["two"]["two"]
    assert found.named_right.k >= found.accuracy.k
    assert [each.path for each in found.unreadable] == [str(tmp_path / "two" / "bad.png")]
    assert found.not_enrolled == {
        "zeroo": "folder 'zeroo' is no enrolled class: its pictures count as unknown; or is it 'zero' misspelt?"
    }
    worst = found.worst()
    assert all(not each.right for each in worst)
    assert [each.sureness for each in worst] == sorted((each.sureness for each in worst), reverse=True)
    assert seen[-1] == (66, 66)
    report = check_report(found, who)
    assert f"false unknown    {found.false_unknown}; target rate 5 % on average" in report
    assert "    1    2    3    ?   called this; shows this:" in report


def test_nothing_usable(tmp_path: Path) -> None:
    (tmp_path / "zero").mkdir()
    (tmp_path / "zero" / "bad.png").write_text("x")
    with refused("no-photos", "none of the 1 pictures", "bad.png"):
        check(recognizer(), tmp_path)


def test_a_folder_is_found_under_the_name_it_was_enrolled_with(tmp_path: Path) -> None:
    """A Mac writes decomposed letters, and file systems keep them."""
    who = recognizer()
    who.rename_class("two", "caf\u00e9")
    write(tmp_path / "cafe\u0301", "two", 20, 30)
    found = check(who, tmp_path)
    assert found.accuracy.n == 10
    assert not found.not_enrolled
