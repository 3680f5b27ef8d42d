"""What is said: advice about photos, names of classes, and the reasons of answers, word for word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from converted import model_file
from glocal.recognizer import Recognizer
from glocal.recognizer.calibration.leave_one_out import Measured
from glocal.recognizer.diagnosis.advice import advice, threshold_moved
from glocal.recognizer.prediction import Evidence, reason
from glocal.recognizer.support import check_class_name, check_distinct
from photos import recognizer, some
from refusal import refused


def found(photos: object) -> dict[str, list[str]]:
    who = Recognizer.enroll(photos, model=model_file("embedded-gel"), device="cpu")
    kinds: dict[str, list[str]] = {}
    for each in who.findings():
        kinds.setdefault(each.kind, []).append(each.text)
    return kinds


def test_copies_are_left_out_and_near_copies_told_of() -> None:
    zero = some("zero", 0, 6)
    darker = (zero[1] * 0.9).astype(np.uint8)
    kinds = found({"zero": [*zero, zero[3], darker], "one": some("one", 0, 6)})
    assert kinds["duplicate"] == ["left out zero/6: the same picture as zero/3 of 'zero'; remove it"]
    who = Recognizer.enroll({"zero": zero, "one": some("one", 0, 6)}, model=model_file("embedded-gel"), device="cpu")
    assert who.add_photos("zero", zero[:1])[0].text == "left out zero/0: 'zero' has it already"
    [near] = kinds["near duplicate"]
    assert near.startswith("zero/1 of 'zero' and zero/7 are nearly the same picture; keep one")


def test_a_photo_in_the_wrong_folder() -> None:
    kinds = found({"zero": some("zero", 0, 6), "one": [*some("one", 0, 6), *some("zero", 9, 10)]})
    assert kinds["stray"] == [
        "one/6 of 'one' looks more like 'zero'; check that it is in the right folder, or add photos of 'one' like it"
    ]
    assert "confusion" not in kinds


def test_a_photo_that_is_blurred_dark_or_overexposed() -> None:
    rng = np.random.default_rng(0)
    sharp = [rng.integers(60, 196, (64, 64, 3), dtype=np.uint8) for _ in range(9)]
    blurred = np.asarray(Image.fromarray(sharp[0]).resize((4, 4)).resize((64, 64), Image.Resampling.BICUBIC))
    bright = (245 + sharp[1] // 20).astype(np.uint8)
    kinds = found({"a": [*sharp[2:5], blurred, sharp[5] // 10], "b": [*sharp[6:], bright]})
    said = [line.split(" beside")[0] for line in kinds["poor photo"]]
    assert said == ["a/3 of 'a' looks blurred", "b/3 of 'b' looks overexposed", "a/4 of 'a' looks dark"]
    assert "poor photo" not in found({"a": [sharp[0], blurred, sharp[1] // 10]})  # nothing is usual yet
    assert "poor photo" not in found({"a": [each // 10 for each in sharp]})  # all of them are: that is how things look


def test_a_threshold_moves_beside_the_photos_of_the_classes() -> None:
    """What moves every score alike, as known unknowns and a further class do, is no reason to speak of them."""
    who = recognizer()
    names, before = who.classes, who.contents.decision

    def changed(scores: float, by: float) -> list[str]:
        left = tuple(each._replace(score=each.score + scores) for each in before.left_out)
        now = replace(before.threshold, value=before.threshold.value + by, spread=1.0)
        [finding] = threshold_moved(names, before, names, replace(before, threshold=now, measured=Measured(left)))
        return [finding.kind, *(word for word in ("stricter", "more lenient") if word in finding.text)]

    assert changed(0.6, 0.6) == ["threshold kept"]
    assert changed(0.0, 0.6) == ["threshold moved", "more lenient"]
    assert changed(0.6, 0.0) == ["threshold moved", "stricter"]


def test_classes_that_will_be_confused() -> None:
    who = recognizer()  # five photos each of zero, one, two
    mixed = {0: 1, 1: 1, 5: 0, 6: 0, 10: 0}  # photo -> the class it would be given
    left = tuple(each._replace(nearest=mixed.get(each.photo, each.label)) for each in who.contents.decision.left_out)
    now = replace(who.contents.decision, measured=Measured(left))
    texts = [each.text for each in advice(who.contents.support, now)]
    assert [text for text in texts if "confused" in text] == [
        "'zero' and 'one' will be confused (4 of 10 photos, each judged by the others); "
        "add photos that show the difference, or merge the two"
    ]
    assert len([text for text in texts if "looks more like" in text]) == 5


def test_too_few_photos_in_one_line_each_and_nothing_about_good_ones() -> None:
    kinds = found({"zero": some("zero", 0, 1), "one": some("one", 0, 1), "two": some("two", 0, 3)})
    assert kinds["few photos"] == [
        "only one photo of 'zero', 'one': nothing can be learned from it about how photos of this class differ; "
        "5 or more are much better",
        "fewer than 5 photos of 'two': names and threshold get better with more",
    ]
    assert recognizer({"zero": 8, "one": 8}).findings() == []


INVISIBLE = ["no\u200bnut", "\u202enut", "nut\ufeff", "nut\u00ad", "\u3164"]


@pytest.mark.parametrize(
    "name", ["", " ", " x", "a/b", "a\\b", "..", ".", "x\ny", "x" * 201, "unknown", "UNKNOWN", *INVISIBLE]
)
def test_names_that_are_refused(name: str) -> None:
    with refused("class-name"):
        check_class_name(name)


def test_names_that_are_fine() -> None:
    assert check_class_name("u\u0308ber") == "\u00fcber"
    assert check_class_name("螺栓 M6 (old)") == "螺栓 M6 (old)"
    check_distinct(["a", "b", "ä", "м", "m"])
    with refused("same-class-name", "'Bolt' and 'bolt'"):
        check_distinct(["Bolt", "bolt"])
    with refused("same-class-name", "two classes called 'bolt'"):
        check_distinct(["bolt", "nut", "bolt"])


@pytest.mark.parametrize("other", ["b\u043elt", "\uff42olt", "bolt\ufe0f", "B\u043eLT"])
def test_names_that_look_the_same_are_refused(other: str) -> None:
    with refused("same-class-name", "'bolt'", "look the same"):
        check_distinct(["bolt", check_class_name(other)])


USUAL = {"E_c": (-9.0, -7.0), "E_f": (1.0, 3.0), "patches": (20.0, 45.0), "open_score": (-6.0, -4.0)}
KNOWN = Evidence("bolt", 0.93, False, -5.5, -3.9, {"E_c": -8.0, "E_f": 2.0}, (41, 49))


def test_reasons_of_known_and_unknown_pictures() -> None:
    assert reason(KNOWN, USUAL) == (
        "bolt (93 %): global and local match as usual, 41 of 49 patches match (usually 20 to 45); "
        "global energy -8 (usually -9 to -7); local energy 2 (usually 1 to 3)"
    )
    weak = replace(KNOWN, is_unknown=True, probability=0.41, parts={"E_c": -8.0, "E_f": 4.5}, patches=(3, 49))
    assert reason(weak, USUAL).startswith(
        "nearest class bolt (41 %), but local match is weak: 3 of 49 patches match (usually 20 to 45); global energy -8"
    )
    both = replace(weak, parts={"E_c": -6.0, "E_f": 4.5})
    assert "but global and local match are weak: 3 of 49" in reason(both, USUAL)
    whole = replace(weak, parts={"E_c": -6.0, "E_f": 2.0})
    assert "but global match is weak; global energy -6 (usually -9 to -7)" in reason(whole, USUAL)
    # Weak but known.
    assert reason(replace(KNOWN, parts={"E_c": -6.9, "E_f": 2.0}), USUAL).startswith(
        "bolt (93 %), though global match is weak; "
    )
    # Unknown without a part out of range.
    edge = replace(KNOWN, is_unknown=True, open_score=-3.5)
    assert reason(edge, USUAL).startswith(
        "nearest class bolt (93 %), but it is not like it enough: open score -3.5, above the threshold -3.9; global"
    )
