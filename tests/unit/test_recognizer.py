"""Enroll, ask, change, save, load."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from converted import converted, model_file
from glocal.recognizer import Recognizer, Unreadable
from photos import digits, recognizer, some, write, write_classes
from refusal import refused

MIXED = {"zero": 1, "one": 7, "two": 3}


def labels(who: Recognizer, word: str, start: int = 20, stop: int = 40) -> list[str]:
    return [answer.label for answer in who.predict(some(word, start, stop))]


def enrolled(photos: object, **how: object) -> Recognizer:
    return Recognizer.enroll(photos, **({"model": model_file(), "device": "cpu"} | how))


def test_it_names_what_it_knows_and_calls_the_rest_unknown() -> None:
    who = recognizer()
    for word in ("zero", "one", "two"):
        assert labels(who, word).count(word) >= 16
    assert labels(who, "six").count("unknown") >= 16
    for answer in who.predict([*some("one", 20, 24), *some("six", 20, 24)]):
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
    with refused("data", "got int"):
        who.predict([3])  # type: ignore[list-item]


def test_a_pillow_image_is_read_as_its_file_is(tmp_path: Path) -> None:
    """Turned by its EXIF, alpha on white, 16 bits cut to 8; and a truncated one is an answer, not the end."""
    [plain] = write(tmp_path, "two", 30, 31)
    image = Image.open(plain).convert("RGB")
    turned, clear, deep = (tmp_path / name for name in ("turned.png", "clear.png", "deep.png"))
    (exif := Image.Exif())[0x0112] = 6
    image.save(turned, exif=exif)
    image.convert("RGBA").resize((40, 40)).rotate(20).save(clear)
    Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 200).save(deep)
    who = recognizer()
    for path in (turned, clear, deep):
        with Image.open(path) as image:
            assert who.predict([image])[0].open_score == who.predict([path])[0].open_score, path.name
    (cut := tmp_path / "cut.png").write_bytes(plain.read_bytes()[:-40])
    with Image.open(cut) as broken, Image.open(plain) as whole:
        bad, good = who.stream([broken, whole])
    assert isinstance(bad, Unreadable)
    assert good == replace(who.predict([plain])[0], path=good.path)


def test_a_folder_and_a_mapping_are_one_thing(tmp_path: Path) -> None:
    write_classes(tmp_path, ["two", "one"], 0, 4)
    folder = enrolled(tmp_path)
    mapping = enrolled({"one": tmp_path / "one", "two": sorted((tmp_path / "two").iterdir())})
    assert folder.classes == mapping.classes == ("one", "two")
    assert folder.contents.identity == mapping.contents.identity
    again = folder.predict(some("one", 9, 12))
    assert [each.open_score for each in mapping.predict(some("one", 9, 12))] == [each.open_score for each in again]


def test_growing_a_recognizer_is_enrolling_all_at_once() -> None:
    who = recognizer({"zero": 5, "one": 5})
    who.add_class("two", some("two", 0, 3))
    assert labels(who, "two").count("two") >= 15
    who.add_photos("two", some("two", 3, 5))
    whole = recognizer()
    assert who.contents.identity == whole.contents.identity
    assert who.contents.decision == whole.contents.decision
    assert who.contents.probes.open_score != ()


def test_pictures_encoded_before_get_the_same_answers_and_become_photos() -> None:
    who, other = recognizer(), recognizer()
    pictures = [*some("zero", 20, 23), *some("six", 20, 23)]
    (found,) = who.batches(pictures)
    assert who.answer(found.batch) == found.answers == list(who.stream(pictures))
    before = who.contents
    for word, start, stop in (("six", 0, 3), ("one", 9, 10)):
        (found,) = who.batches(some(word, start, stop))
        who.add_bank(word, found.batch.bank())
        (other.add_class if word == "six" else other.add_photos)(word, some(word, start, stop))
        assert who.contents.identity == other.contents.identity
        assert who.contents.decision == other.contents.decision
    assert "six" not in before.support.names


def test_removing_undoes_adding_and_renaming_keeps_the_answers() -> None:
    who = recognizer()
    before = who.contents
    who.add_class("six", some("six", 0, 5))
    assert "six" in labels(who, "six")
    who.remove_class("six")
    assert who.contents.identity == before.identity
    assert who.contents.decision == before.decision
    who.add_photos("one", some("one", 9, 10))
    digest = who.contents.support.classes["one"].photos[-1].digest
    who.remove_photo(digest)
    assert who.contents.identity == before.identity
    assert who.contents.decision == before.decision
    with refused("no-photo"):
        who.remove_photo(digest)
    who.rename_class("two", "deux")
    assert who.classes == ("zero", "one", "deux")
    assert "deux" in labels(who, "two")
    assert who.threshold == before.decision.threshold
    with refused("last-class", "'zero'"):
        recognizer({"zero": 2}).remove_class("zero")


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        (lambda who: who.add_class("one", some("one", 5, 6)), "class-exists", "'one'"),
        (lambda who: who.add_class("One", some("one", 5, 6)), "same-class-name", "upper and lower case"),
        (lambda who: who.add_class("../x", some("six", 5, 6)), "class-name", "path"),
        (lambda who: who.add_class("six", []), "no-photos", "'six'"),
        (lambda who: who.add_class("six", some("one", 0, 1)), "photo-in-two-classes", "'six'"),
        (lambda who: who.add_photos("six", some("six", 0, 1)), "no-class", "the classes are zero, one"),
        (lambda who: who.remove_class("six"), "no-class", "'six'"),
        (lambda who: who.rename_class("one", "two"), "class-exists", "'two'"),
        (lambda who: who.rename_class("one", "Unknown"), "class-name", "'Unknown'"),
        (lambda who: who.remove_photo(who.contents.support.photos[0].digest), "last-photo", "'zero'"),
    ],
)
def test_a_change_that_is_refused_changes_nothing(change, code: str, word: str) -> None:
    who = recognizer(MIXED)
    before, answer = who.contents, who.predict(some("one", 20, 21))
    with refused(code, word):
        change(who)
    assert who.contents is before
    assert who.predict(some("one", 20, 21)) == answer


def test_a_threshold_by_hand_is_kept_and_every_answer_shows_the_one_threshold() -> None:
    who = recognizer()
    computed = who.threshold
    assert who.set_threshold(1e9).source == "user"
    assert "unknown" not in labels(who, "six")
    findings = who.add_class("six", some("six", 0, 5))
    assert who.threshold.value == 1e9
    assert [each.kind for each in findings][-1] == "by hand"
    who.remove_class("six")
    assert who.set_threshold(target_rate=0.05) == computed
    assert who.set_threshold(target_rate=0.3).value < computed.value
    with refused("recipe", "by hand or computed"):
        who.set_threshold(1.0, target_rate=0.1)
    with refused("recipe", "a share between"):
        who.set_threshold(target_rate=5)
    who = recognizer()
    asked = [*some("zero", 20, 26), *some("six", 20, 26)]
    scores = who.compare(who.embedder.embed(asked)).open_score
    for answer, score in zip(who.predict(asked), scores, strict=True):
        assert answer.threshold == who.threshold.value
        assert answer.is_unknown == (answer.open_score > answer.threshold)
        level = who.threshold.levels[who.classes.index(answer.nearest)]
        assert answer.open_score == pytest.approx(score - level, abs=1e-5)


def test_confirmed_answers_tighten_the_threshold_until_the_classes_change(tmp_path: Path) -> None:
    who = recognizer()
    before = who.threshold
    answers = who.predict([*some("zero", 20, 40), *some("six", 20, 24), *some("zero", 0, 1)])
    truth = ["zero"] * 20 + ["unknown"] * 4 + ["zero"]
    after = who.confirm(zip(answers, truth, strict=True))
    assert after.n_scores == before.n_scores + 20, "neither unknown things nor support photos count"
    assert after.interval[1] < before.interval[1]
    scores = who.compare(who.embedder.embed(some("zero", 20, 40))).open_score
    assert [each.score for each in who.contents.decision.measured.confirmed] == pytest.approx(scores, abs=1e-5)
    again = who.confirm(zip(who.predict(some("zero", 20, 22)), ["zero"] * 2, strict=True))
    assert again.n_scores <= after.n_scores + 2
    who.save(tmp_path / "a.glocal")
    back = Recognizer.load(tmp_path / "a.glocal", device="cpu")
    assert back.threshold == who.threshold
    assert back.set_threshold(target_rate=0.05) == who.set_threshold(target_rate=0.05)
    assert "unconfirmed" in {each.kind for each in who.add_class("six", some("six", 0, 5))}
    assert not who.contents.decision.measured.confirmed


def test_known_unknowns_take_part(tmp_path: Path) -> None:
    who = enrolled({"zero": some("zero", 0, 1)}, unknown=some("six", 0, 8), model=model_file("embedded-protonet"))
    assert who.threshold.source == "known unknowns"
    scores = who.compare(who.contents.unknown.features).open_score
    assert who.threshold.value == pytest.approx(np.quantile(scores, 0.05))
    who.save(tmp_path / "a.glocal")
    back = Recognizer.load(tmp_path / "a.glocal", device="cpu")
    assert len(back.contents.unknown) == 8
    assert back.set_threshold(target_rate=0.05).value == pytest.approx(who.threshold.value)


def test_a_head_that_cannot_learn_from_known_unknowns_says_what_they_are_good_for() -> None:
    who = enrolled({word: some(word, 0, 5) for word in ("zero", "one", "two")}, model=model_file("embedded-protonet"))
    before = who.threshold
    assert "unknown unused" in {each.kind for each in who.add_unknown(some("six", 0, 8))}
    assert who.threshold == before
    assert who.set_threshold(with_unknown=0.4).value <= before.value
    assert "unknown unused" not in {each.kind for each in who.findings()}


def test_known_unknowns_can_come_later_and_are_told_from_the_classes(tmp_path: Path) -> None:
    classes = {word: some(word, 0, 5) for word in ("zero", "one", "two")}
    who = enrolled(classes, model=None)
    before = who.compare(who.embedder.embed(some("six", 30, 50))).open_score.mean()
    known = who.compare(who.embedder.embed(some("one", 30, 50))).open_score.mean()
    who.add_unknown(some("six", 0, 8))
    assert len(who.contents.unknown) == 8
    after = who.compare(who.embedder.embed(some("six", 30, 50))).open_score.mean()
    assert after - who.compare(who.embedder.embed(some("one", 30, 50))).open_score.mean() > before - known
    with refused("photo-in-two-classes"):
        who.add_unknown(some("one", 0, 1))
    assert len(who.add_unknown(some("six", 0, 8))) >= 0
    assert len(who.contents.unknown) == 8  # the same photos again are no more
    who.save(tmp_path / "a.glocal")
    back = Recognizer.load(tmp_path / "a.glocal", device="cpu")
    asked = [*some("six", 60, 63), *some("two", 60, 63)]
    assert [each.open_score for each in back.predict(asked)] == [each.open_score for each in who.predict(asked)]


@pytest.mark.parametrize(
    ("model", "shots"),
    [
        *((None, shots) for shots in ({"zero": 1}, {"zero": 40}, {"zero": 1, "one": 1}, MIXED)),
        *(("embedded-gel", shots) for shots in ({"zero": 1}, MIXED)),
    ],
)
def test_any_number_of_classes_and_photos(shots: dict[str, int], model: str | None, tmp_path: Path) -> None:
    """With a built-in and with a converted model; the file of one changes no answer."""
    photos = {word: some(word, 0, n) for word, n in shots.items()}
    who = enrolled(photos, model=model and model_file(model))
    who.save(tmp_path / "a.glocal")
    back = Recognizer.load(tmp_path / "a.glocal", device="cpu")
    asked = [*some("zero", 50, 52), *some("six", 20, 22)]
    for here, there in zip(back.predict(asked), who.predict(asked), strict=True):
        assert (here.label, here.threshold, here.reason) == (there.label, there.threshold, there.reason)
        assert here.open_score == pytest.approx(there.open_score, abs=1e-6)  # the order in which numbers are added
    assert back.predict(some("zero", 50, 51))[0].nearest == "zero"
    assert len(back.predict(some("zero", 0, 0))) == 0
    assert back.contents.identity == who.contents.identity
    assert len(who.contents.decision.left_out) == sum(min(n, 32) for n in shots.values() if n > 1)
    back.save(tmp_path / "b.glocal")
    assert (tmp_path / "a.glocal").read_bytes() == (tmp_path / "b.glocal").read_bytes()


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
    with refused("bad-picture", "bad.png: its content is not a picture"):
        who.predict([*good, bad])
    first, second, third = who.stream([good[0], bad, good[1]])
    assert isinstance(second, Unreadable)
    assert second.path == str(bad)
    assert [first, third] == who.predict(good)


def test_bad_photos_are_named_or_left_out_and_told_of(tmp_path: Path) -> None:
    write_classes(tmp_path, ["one", "two"], 0, 3)
    bad = tmp_path / "one" / "empty.png"
    bad.write_bytes(b"")
    with refused("bad-photos", "1 of 7", "empty.png: the file is empty"):
        enrolled(tmp_path)
    who = enrolled(tmp_path, skip_bad=True)
    assert who.contents.support.shots == [3, 3]
    assert any("empty.png" in each.text for each in who.findings())
    write(tmp_path / "unknown", "six", 0, 2)
    (tmp_path / "unknown" / "cut.png").write_bytes(bad.read_bytes())
    told = {each.kind: each.text for each in enrolled(tmp_path, skip_bad=True).findings()}
    assert told["known unknowns"].startswith("2 photos")
    findings = who.add_class("six", [*some("six", 0, 2), bad], skip_bad=True)
    assert findings[0].kind == "unreadable"
    assert len(who.contents.support.classes["six"]) == 2
    before = who.contents
    with refused("no-photos", "none of the 1 photos", "empty.png"):
        who.add_photos("six", [bad], skip_bad=True)
    with refused("bad-photos", "1 of 1"):
        who.add_photos("six", [bad])
    assert who.contents is before


def test_photos_beside_the_class_folders_are_told_of(tmp_path: Path) -> None:
    write_classes(tmp_path, ["one", "two"], 0, 3)
    assert "loose" not in {each.kind for each in enrolled(tmp_path).findings()}
    next((tmp_path / "one").iterdir()).rename(tmp_path / "stray.png")
    (tmp_path / "notes.txt").write_text("no photo")
    (tmp_path / "._stray.png").write_bytes(b"what a Mac leaves beside a photo on a foreign disk")
    packed = Path(shutil.make_archive(str(tmp_path.with_suffix(".packed")), "zip", tmp_path))
    for photos in (tmp_path, packed):
        found = next(each for each in enrolled(photos).findings() if each.kind == "loose")
        assert "stray.png" in found.text
        assert "notes.txt" not in found.text
        assert "._stray.png" not in found.text


def test_a_folder_around_the_class_folders_is_no_class(tmp_path: Path) -> None:
    write_classes(tmp_path / "photos", ["one", "two"], 0, 3)
    for name in ("a", "b"):
        (tmp_path / "__MACOSX" / name).mkdir(parents=True)
    assert "nested" not in {each.kind for each in enrolled(tmp_path).findings()}


def test_a_threshold_that_calls_everything_unknown_is_refused() -> None:
    """JSON has no infinity, and one sign of it is taken."""
    who = recognizer()
    who.set_threshold(math.inf)
    with refused("recipe", "got -inf"):
        who.set_threshold(-math.inf)
    assert who.threshold.value == math.inf


def test_models_that_cannot_serve_are_refused(tmp_path: Path) -> None:
    photos = {"zero": some("zero", 0, 2)}
    with refused("too-few-classes", "frozen-gel", "2 classes, got 1"):
        enrolled(photos, model=replace(converted(), min_way=2))
    with refused("too-few-classes", "'entropy'", "with --score: nearest"):
        enrolled(photos, model=model_file("embedded-protonet"), score="entropy")
    with refused("open-score", "E, E_c, E_f, got 'entropy'"):
        enrolled(photos, model=None, score="entropy")
    with refused("not-converted", f"`glocal convert {tmp_path} -o FILE` makes a model of it"):
        enrolled(photos, model=tmp_path)
    with refused("no-head", "there is no head 'rigde'; did you mean 'ridge'?"):
        enrolled(photos, model=None, head="rigde")
    with refused("no-encoder", "there is no encoder 'fats'; did you mean 'fast'?"):
        enrolled(photos, model=None, encoder="fats")


def test_a_converted_model_in_memory_and_another_score(tmp_path: Path) -> None:
    photos = {word: list(images[:3]) for word, images in digits().items()}
    who = enrolled(photos, model=converted(), score="distance")
    who.save(tmp_path / "a.glocal")
    back = Recognizer.load(tmp_path / "a.glocal", device="cpu")
    assert back.contents.model.head.open_score == "distance"
    assert back.predict(some("one", 9, 10)) == who.predict(some("one", 9, 10))
    same = enrolled(photos, model=tmp_path / "a.glocal")
    assert same.contents.identity == who.contents.identity, "the model of a file"
