"""Changes that need no second look at a picture: photos seen before join, single photos go."""

from __future__ import annotations

from pathlib import Path

import pytest

from glocal.recognizer import Prediction
from glocal.recognizer.eye import Batch
from glocal.recognizer.support import Bank
from glocal_runtime.errors import DataError
from photos import recognizer, some, write


def seen(who, word: str, start: int, stop: int) -> Batch:
    (found,) = who.batches(some(word, start, stop))
    return found.batch


def test_photos_seen_before_are_photos() -> None:
    who, other = recognizer(), recognizer()
    before = who.contents
    who.add_seen("six", Bank.of([seen(who, "six", 0, 3)]))
    other.add_class("six", some("six", 0, 3))
    assert who.contents.identity == other.contents.identity
    assert who.contents.decision == other.contents.decision
    who.add_seen("one", Bank.of([seen(who, "one", 9, 10)]))
    other.add_photos("one", some("one", 9, 10))
    assert who.contents.identity == other.contents.identity
    assert "six" not in before.support.names


def test_answers_about_pictures_seen_before_are_the_same() -> None:
    who = recognizer()
    pictures = [*some("zero", 20, 23), *some("six", 20, 23)]
    (found,) = who.batches(pictures)
    assert who.answer(found.batch) == found.answers == list(who.stream(pictures))
    assert all(isinstance(each, Prediction) for each in found.answers)


def test_removing_a_photo_undoes_adding_it() -> None:
    who = recognizer()
    before = who.contents
    who.add_photos("one", some("one", 9, 10))
    digest = who.contents.support.classes["one"].photos[-1].digest
    who.remove_photo(digest)
    assert who.contents.identity == before.identity
    assert who.contents.decision == before.decision
    with pytest.raises(DataError, match=r"there is no .*photo"):
        who.remove_photo(digest)


def test_the_last_photo_of_a_class_stays() -> None:
    who = recognizer({"zero": 1, "one": 2})
    before = who.contents
    with pytest.raises(DataError, match=r"the only photo of .*zero"):
        who.remove_photo(before.support.classes["zero"].photos[0].digest)
    assert who.contents is before


def test_bad_photos_are_left_out_and_told_of(tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    who = recognizer()
    findings = who.add_class("six", [*write(tmp_path / "six", "six", 0, 2), bad], skip_bad=True)
    assert findings[0].kind == "unreadable"
    assert "bad.png" in findings[0].text
    assert len(who.contents.support.classes["six"]) == 2
    before = who.contents
    with pytest.raises(DataError, match=r"none of the 1 photos can be used; the first: .*bad.png"):
        who.add_photos("six", [bad], skip_bad=True)
    with pytest.raises(DataError, match="1 of 1 photos cannot be used"):
        who.add_photos("six", [bad])
    assert who.contents is before
