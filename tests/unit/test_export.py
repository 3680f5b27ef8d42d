"""Exports give the answers of the file they come from; what would not is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from exports import graphs, onnx_recognizer, traced_once
from glocal.cli.main import app
from glocal.recognizer import Recognizer
from glocal.recognizer.enrolled import TOLERANCE, relative
from glocal.recognizer.file import read_manifest
from glocal.recognizer.model import EMBED
from glocal.research.convert import onnx as exporting
from glocal.research.convert.onnx import export
from photos import recognizer, some, write_classes
from refusal import refused
from tiny_models import tiny_model

QUERIES = [*some("zero", 20, 24), *some("two", 20, 24), *some("seven", 0, 4)]


def assert_same(ours: Recognizer, theirs: Recognizer) -> None:
    assert theirs.classes == ours.classes
    for a, b in zip(ours.predict(QUERIES), theirs.predict(QUERIES), strict=True):
        assert relative(a.open_score, b.open_score) <= TOLERANCE
        assert relative(a.threshold, b.threshold) <= TOLERANCE
        assert (a.nearest, a.warning, a.path) == (b.nearest, b.warning, b.path)
        assert a.probabilities == pytest.approx(b.probabilities, abs=1e-3)
        assert a.reason.split("; ")[0] == b.reason.split("; ")[0], "the same patches are counted"
        if relative(a.threshold, a.open_score) > 10 * TOLERANCE:
            assert a.label == b.label


def test_the_answers_of_the_file_before_and_after_the_same_changes(tmp_path: Path) -> None:
    ours, place = recognizer(), tmp_path / "digits.glocal"
    assert traced_once(ours, place).difference <= TOLERANCE
    theirs = Recognizer.load(place)
    assert theirs.threshold == ours.threshold
    assert_same(ours, theirs)
    assert all(each.same for each in theirs.verify())
    assert [str(each) for each in theirs.findings()] == [str(each) for each in ours.findings()]
    model = read_manifest(place)["model"]
    assert (model["method"], model["precision"]) == ("frozen-gel", "float32")
    assert model["report"]["difference"] <= TOLERANCE
    assert str(Path(exporting.__file__).parent).encode() not in place.read_bytes(), "no path of this machine"
    images = [np.asarray(who.explain(some("one", 20, 21)[0])).astype(int) for who in (ours, theirs)]
    assert images[0].shape == images[1].shape
    assert (images[0] != images[1]).any(axis=2).mean() < 0.02, "a digit of a score may differ in its last place"
    for who in (ours, theirs):
        who.add_class("seven", some("seven", 30, 34))
        who.add_photos("one", some("one", 30, 31))
        who.remove_class("two")
    assert theirs.threshold.source == ours.threshold.source
    assert_same(ours, theirs)
    theirs.save(place)
    assert_same(theirs, Recognizer.load(place))


def test_a_method_without_patches(tmp_path: Path) -> None:
    photos = {"zero": some("zero", 0, 5), "one": some("one", 0, 4), "two": some("two", 0, 1)}
    ours = Recognizer.enroll(photos, model=tiny_model("protonet"), device="cpu", max_false_unknown=0.2)
    assert export(ours, tmp_path / "plain.glocal").difference <= TOLERANCE
    assert_same(ours, Recognizer.load(tmp_path / "plain.glocal"))


def test_enrolling_with_the_graphs_of_a_file_is_what_torch_does(tmp_path: Path) -> None:
    onnx_recognizer().save(tmp_path / "digits.glocal")
    photos = write_classes(tmp_path / "photos", ["six", "four"], 0, 5)
    how = {"unknown": some("nine", 0, 4), "per_class": True, "device": "cpu"}
    ours = Recognizer.enroll(photos, model="embedded-gel", **how)
    theirs = Recognizer.enroll(photos, model=tmp_path / "digits.glocal", **how)
    assert theirs.classes == ours.classes == ("four", "six")
    assert theirs.threshold.per_class == pytest.approx(ours.threshold.per_class, abs=1e-4)
    for a, b in zip(ours.contents.decision.left_out, theirs.contents.decision.left_out, strict=True):
        assert (a.photo, a.label, a.shots, a.nearest) == (b.photo, b.label, b.shots, b.nearest)
        assert a.score == pytest.approx(b.score, abs=1e-4)
    for name, range_ in ours.contents.decision.usual.items():
        assert theirs.contents.decision.usual[name] == pytest.approx(range_, abs=1e-3)


def test_graphs_that_would_answer_otherwise_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    other = recognizer()
    method = other.contents.model.model.method
    monkeypatch.setattr(method, "temperature", 1.01 * method.temperature)
    with refused("other-answers"):
        traced_once(other, tmp_path / "wrong.glocal")
    assert list(tmp_path.iterdir()) == []
    many = recognizer({"zero": 5, "one": 5})
    monkeypatch.setattr(type(many.contents.model.model.method), "most_exported", 9)
    with refused("too-many-photos", "9", "10"):
        export(many, tmp_path / "many.glocal")
    assert list(tmp_path.iterdir()) == []


def test_an_older_file_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / "digits.glocal"
    for shots in ({"zero": 5, "one": 5, "two": 5}, {"zero": 5, "one": 5}):
        traced_once(recognizer(shots), place)
        assert Recognizer.load(place).classes == tuple(shots)
    (tmp_path / "letter.txt").write_text("dear")
    for target in (tmp_path, tmp_path / "letter.txt" / "export.glocal"):
        with refused("bad-target"):
            export(recognizer(), target)
    with refused("is-onnx"):
        export(Recognizer.load(place), tmp_path / "again.glocal")
    assert {path.name for path in tmp_path.iterdir()} == {"digits.glocal", "letter.txt"}


def test_int8_is_measured_and_verifies_by_its_own_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = graphs("embedded-gel")
    monkeypatch.setattr(exporting, "trace", lambda model: whole)
    file, place = tmp_path / "digits.glocal", tmp_path / "small.glocal"
    recognizer().save(file)
    labelled = write_classes(tmp_path / "labelled", ["zero", "one", "two"], 40, 44)
    write_classes(labelled, ["seven"], 40, 46).joinpath("seven").rename(labelled / "unknown")
    other = CliRunner().invoke(app, ["export", str(file), "-o", str(place), "--format", "x"])
    assert "must be onnx" in str(other.exception)
    found = CliRunner().invoke(
        app, ["export", str(file), "-o", str(place), "--int8", "--check", str(labelled), "--json", "--device", "cpu"]
    )
    assert found.exit_code == 0, found.output
    report = json.loads(found.stdout)
    assert (report["file"], report["precision"]) == (str(place), "int8")
    assert report["agreement"]["pictures"] == 18
    assert report["before"]["acc"] - report["after"]["acc"] <= 0.1
    assert report["before"]["auroc"] - report["after"]["auroc"] <= 0.1
    assert report["difference"] > TOLERANCE, "8 bits cannot be that exact"
    assert report["bytes"][EMBED] < len(whole[EMBED]) / 2
    small = Recognizer.load(place)
    assert all(each.same for each in small.verify())
    assert small.contents.model.precision == "int8"
    told = traced_once(recognizer(), place, int8=True)
    assert told.measured_on.startswith("thumbnails of the 15 support photos")
    assert told.before is not None
    assert told.before.acc >= 0.8
