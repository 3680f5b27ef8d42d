"""Advice about photos, and the names of classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from glocal_runtime import Recognizer
from glocal_runtime.advice import advice
from glocal_runtime.support import check_class_name, check_distinct
from photos import recognizer, some, write_classes
from refusal import refused


def found(photos: object) -> dict[str, list[str]]:
    who = Recognizer.enroll(photos, model="embedded-gel", device="cpu")
    kinds: dict[str, list[str]] = {}
    for each in who.findings():
        kinds.setdefault(each.kind, []).append(each.text)
    return kinds


def test_nothing_to_say_about_good_photos() -> None:
    assert recognizer({"zero": 8, "one": 8}).findings() == []


def test_copies_are_left_out_and_near_copies_told_of() -> None:
    zero = some("zero", 0, 6)
    darker = (zero[1] * 0.9).astype(np.uint8)
    kinds = found({"zero": [*zero, zero[3], darker], "one": some("one", 0, 6)})
    assert kinds["duplicate"] == ["left out zero/6: the same picture as zero/3 of 'zero'; remove it"]
    [near] = kinds["near duplicate"]
    assert near.startswith("zero/1 of 'zero' and zero/7 are nearly the same picture; keep one")


def test_the_same_photo_in_two_classes_is_refused() -> None:
    with refused("photo-in-two-classes", "zero/0 of class 'zero' and one/1 of class 'one'"):
        found({"zero": some("zero", 0, 2), "one": [*some("one", 0, 1), *some("zero", 0, 1)]})


def test_a_photo_in_the_wrong_folder() -> None:
    kinds = found({"zero": some("zero", 0, 6), "one": [*some("one", 0, 6), *some("zero", 9, 10)]})
    assert kinds["stray"] == [
        "one/6 of 'one' looks more like 'zero'; check that it is in the right folder, or add photos of 'one' like it"
    ]
    assert "confusion" not in kinds


def test_classes_that_will_be_confused() -> None:
    who = recognizer()  # five photos each of zero, one, two
    mixed = {0: 1, 1: 1, 5: 0, 6: 0, 10: 0}  # photo -> the class it would be given
    left = tuple(each._replace(nearest=mixed.get(each.photo, each.label)) for each in who.contents.decision.left_out)
    texts = [each.text for each in advice(who.contents.support, replace(who.contents.decision, left_out=left))]
    assert [text for text in texts if "confused" in text] == [
        "'zero' and 'one' will be confused (4 of 10 photos, each judged by the others); "
        "add photos that show the difference, or merge the two"
    ]
    assert len([text for text in texts if "looks more like" in text]) == 5


def test_too_few_photos_in_one_line_each() -> None:
    kinds = found({"zero": some("zero", 0, 1), "one": some("one", 0, 1), "two": some("two", 0, 3)})
    assert kinds["few photos"] == [
        "only one photo of 'zero', 'one': nothing can be learned from it about how photos of this class differ; "
        "5 or more are much better",
        "fewer than 5 photos of 'two': names and threshold get better with more",
    ]


def test_folders_in_folders_are_told_of(tmp_path: Path) -> None:
    write_classes(tmp_path / "round", ["zero", "six"], 0, 3)
    write_classes(tmp_path, ["one"], 0, 6)
    [text] = found(tmp_path)["nested"]
    assert text.startswith("class 'round' is made of the folders 'six', 'zero' in it; if these are the classes")


@pytest.mark.parametrize("name", ["", " ", " x", "a/b", "a\\b", "..", ".", "x\ny", "x" * 201, "unknown", "UNKNOWN"])
def test_names_that_are_refused(name: str) -> None:
    with refused("class-name"):
        check_class_name(name)


def test_names_that_are_fine() -> None:
    assert check_class_name("u\u0308ber") == "\u00fcber"
    assert check_class_name("螺栓 M6 (old)") == "螺栓 M6 (old)"
    check_distinct(["a", "b"])
    with refused("same-class-name", "'Bolt' and 'bolt'"):
        check_distinct(["Bolt", "bolt"])
    with refused("same-class-name", "two classes called 'bolt'"):
        check_distinct(["bolt", "nut", "bolt"])
