"""Enroll, ask, change, save, load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glocal.recognizer import Recognizer, Unreadable
from glocal_runtime.errors import DataError, RecipeError
from photos import digits, recognizer, some, write, write_classes
from tiny_models import tiny_model


def labels(who: Recognizer, word: str, start: int = 20, stop: int = 40) -> list[str]:
    return [answer.label for answer in who.predict(some(word, start, stop))]


def test_it_names_what_it_knows_and_calls_the_rest_unknown() -> None:
    who = recognizer()
    for word in ("zero", "one", "two"):
        assert labels(who, word).count(word) >= 16
    assert labels(who, "six").count("unknown") >= 16


def test_an_answer_is_consistent() -> None:
    for answer in recognizer().predict([*some("one", 20, 24), *some("six", 20, 24)]):
        assert answer.is_unknown == (answer.open_score > answer.threshold)
        assert answer.label == ("unknown" if answer.is_unknown else answer.nearest)
        assert list(answer.probabilities) == ["zero", "one", "two", "unknown"]
        assert sum(answer.probabilities.values()) == pytest.approx(1)
        assert answer.nearest in answer.reason
        assert answer.warning == ""


def test_every_kind_of_picture_gets_the_same_answer(tmp_path: Path) -> None:
    [path] = write(tmp_path, "two", 30, 31)
    [pixels] = some("two", 30, 31)
    who = recognizer()
    kinds = [str(path), path, path.read_bytes(), Image.fromarray(pixels), pixels]
    scores = {who.predict([kind])[0].open_score for kind in kinds}
    scores |= {who.predict(path)[0].open_score, who.predict(tmp_path)[0].open_score}
    assert len(scores) == 1
    with pytest.raises(DataError, match=r"must be a path, bytes, .* got int"):
        who.predict([3])  # type: ignore[list-item]


def test_a_folder_and_a_mapping_are_one_thing(tmp_path: Path) -> None:
    write_classes(tmp_path, ["two", "one"], 0, 4)
    folder = Recognizer.enroll(tmp_path, model="embedded-gel", device="cpu")
    mapping = Recognizer.enroll(
        {"one": tmp_path / "one", "two": sorted((tmp_path / "two").iterdir())}, model="embedded-gel", device="cpu"
    )
    assert folder.classes == mapping.classes == ("one", "two")
    assert folder.contents.identity == mapping.contents.identity
    again = folder.predict(some("one", 9, 12))
    assert [each.open_score for each in mapping.predict(some("one", 9, 12))] == [each.open_score for each in again]


def test_a_file_changes_no_answer(tmp_path: Path) -> None:
    who = recognizer()
    who.save(tmp_path / "a.glocal")
    back = Recognizer.load(tmp_path / "a.glocal", device="cpu")
    asked = [*some("zero", 20, 30), *some("six", 20, 30)]
    assert [each.to_json() for each in back.predict(asked)] == [each.to_json() for each in who.predict(asked)]
    back.save(tmp_path / "b.glocal")
    assert (tmp_path / "a.glocal").read_bytes() == (tmp_path / "b.glocal").read_bytes()


def test_growing_a_recognizer_is_enrolling_all_at_once() -> None:
    who = recognizer({"zero": 5, "one": 5})
    who.add_class("two", some("two", 0, 3))
    assert labels(who, "two").count("two") >= 15
    who.add_photos("two", some("two", 3, 5))
    whole = recognizer()
    assert who.contents.identity == whole.contents.identity
    assert who.threshold == whole.threshold
    assert who.contents.decision == whole.contents.decision
    assert who.contents.probes.open_score != ()


def test_removing_undoes_adding_and_renaming_keeps_the_answers() -> None:
    who = recognizer()
    before = who.contents
    who.add_class("six", some("six", 0, 5))
    assert "unknown" not in labels(who, "six")[:3]
    who.remove_class("six")
    assert who.contents.identity == before.identity
    assert who.contents.decision == before.decision
    who.rename_class("two", "deux")
    assert who.classes == ("zero", "one", "deux")
    assert "deux" in labels(who, "two")
    assert who.threshold == before.decision.threshold


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda who: who.add_class("one", some("one", 5, 6)), "there is a class 'one' already"),
        (lambda who: who.add_class("One", some("one", 5, 6)), "differ only in upper and lower case"),
        (lambda who: who.add_class("../x", some("six", 5, 6)), "must not be a path"),
        (lambda who: who.add_class("six", []), "needs at least one photo"),
        (lambda who: who.add_class("six", some("one", 0, 1)), "are the same picture"),
        (lambda who: who.add_photos("six", some("six", 0, 1)), "there is no class 'six'; the classes are zero, one"),
        (lambda who: who.remove_class("six"), "there is no class 'six'"),
        (lambda who: who.rename_class("one", "two"), "there is a class 'two' already"),
        (lambda who: who.rename_class("one", "Unknown"), "cannot be called 'Unknown'"),
    ],
)
def test_a_change_that_is_refused_changes_nothing(change, message: str) -> None:
    who = recognizer()
    before, answer = who.contents, who.predict(some("one", 20, 21))
    with pytest.raises(DataError, match=message):
        change(who)
    assert who.contents is before
    assert who.predict(some("one", 20, 21)) == answer


def test_the_last_class_stays() -> None:
    who = recognizer({"zero": 2})
    with pytest.raises(DataError, match="'zero' is the only class"):
        who.remove_class("zero")


def test_a_threshold_by_hand_is_kept_and_told_of() -> None:
    who = recognizer()
    computed = who.threshold
    assert who.set_threshold(1e9).source == "user"
    assert "unknown" not in labels(who, "six")
    findings = who.add_class("six", some("six", 0, 5))
    assert who.threshold.value == 1e9
    assert any("was set by hand and is kept" in each.text for each in findings)
    who.remove_class("six")
    assert who.set_threshold(max_false_unknown=0.05) == computed
    assert who.set_threshold(max_false_unknown=0.3).value < computed.value
    with pytest.raises(RecipeError, match="by hand or computed"):
        who.set_threshold(1.0, per_class=True)
    with pytest.raises(RecipeError, match="a share between"):
        who.set_threshold(max_false_unknown=5)


def test_thresholds_by_class_decide_by_the_nearest_class() -> None:
    who = recognizer()
    values = who.set_threshold(per_class=True).per_class
    assert values is not None
    assert len(values) == 3
    for answer in who.predict([*some("zero", 20, 26), *some("six", 20, 26)]):
        assert answer.threshold == values[who.classes.index(answer.nearest)]


def test_known_unknowns_take_part(tmp_path: Path) -> None:
    who = Recognizer.enroll(
        {"zero": some("zero", 0, 1), "one": some("one", 0, 1)},
        unknown=some("six", 0, 8),
        model="embedded-protonet",
        device="cpu",
    )
    assert who.threshold.source == "known unknowns"
    scores, _ = who.scores(who.contents.unknown.views)
    assert who.threshold.value == pytest.approx(np.quantile(scores, 0.05))
    who.save(tmp_path / "a.glocal")
    back = Recognizer.load(tmp_path / "a.glocal", device="cpu")
    assert len(back.contents.unknown) == 8
    assert back.set_threshold(max_false_unknown=0.05).value == pytest.approx(who.threshold.value)


@pytest.mark.parametrize("shots", [{"zero": 1}, {"zero": 4}, {"zero": 1, "one": 1}, {"zero": 1, "one": 7, "two": 3}])
def test_any_number_of_classes_and_photos(shots: dict[str, int], tmp_path: Path) -> None:
    who = recognizer(shots)
    who.save(tmp_path / "a.glocal")
    back = Recognizer.load(tmp_path / "a.glocal", device="cpu")
    assert back.predict(some("zero", 20, 21))[0].nearest == "zero"
    assert len(back.predict(some("zero", 0, 0))) == 0


def test_a_support_photo_is_known_again() -> None:
    who = recognizer()
    [pixels] = some("one", 2, 3)
    brighter = (pixels.astype(int) * 0.9 + 10).astype(np.uint8)
    exact, near, other = who.predict([pixels, brighter, *some("one", 20, 21)])
    assert "this is the support photo one/2 of one" in exact.warning
    assert "this is nearly the support photo one/2 of one" in near.warning
    assert other.warning == ""


def test_bad_pictures_stop_a_list_and_not_a_stream(tmp_path: Path) -> None:
    good = write(tmp_path, "one", 20, 22)
    bad = tmp_path / "bad.png"
    bad.write_text("no picture")
    who = recognizer()
    with pytest.raises(DataError, match=r"cannot use picture .*bad.png: its content is not a picture"):
        who.predict([*good, bad])
    first, second, third = who.stream([good[0], bad, good[1]])
    assert isinstance(second, Unreadable)
    assert second.path == str(bad)
    assert [first, third] == who.predict(good)


def test_bad_photos_are_named_or_left_out(tmp_path: Path) -> None:
    write_classes(tmp_path, ["one", "two"], 0, 3)
    (tmp_path / "one" / "empty.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"1 of 7 photos cannot be used(.|\n)*empty.png: the file is empty"):
        Recognizer.enroll(tmp_path, model="embedded-gel", device="cpu")
    who = Recognizer.enroll(tmp_path, model="embedded-gel", device="cpu", skip_bad=True)
    assert who.contents.support.shots == [3, 3]
    assert any("empty.png" in each.text for each in who.findings())


def test_methods_that_cannot_serve_are_refused() -> None:
    photos = {"zero": some("zero", 0, 2)}
    with pytest.raises(RecipeError, match="oslo lets the pictures of a folder see each other"):
        Recognizer.enroll(photos, model=tiny_model("oslo"), device="cpu")
    with pytest.raises(RecipeError, match="rfdnet needs at least 2 classes, got 1"):
        Recognizer.enroll(photos, model=tiny_model("rfdnet"), device="cpu")
    with pytest.raises(RecipeError, match=r"'entropy' compares classes .* choose another with --score: nearest"):
        Recognizer.enroll(photos, model="embedded-protonet", score="entropy", device="cpu")


def test_a_model_in_memory_and_another_score(tmp_path: Path) -> None:
    photos = {word: list(images[:3]) for word, images in digits().items()}
    who = Recognizer.enroll(photos, model=tiny_model("snatcher-f"), score="distance", device="cpu")
    who.save(tmp_path / "a.glocal")
    back = Recognizer.load(tmp_path / "a.glocal", device="cpu")
    assert back.contents.brain.score == "distance"
    assert back.predict(some("one", 9, 10)) == who.predict(some("one", 9, 10))
