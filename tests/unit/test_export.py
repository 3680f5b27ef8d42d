"""Exports give the answers of the file they come from; what would not is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from exports import graphs, traced_once
from glocal.cli.main import app
from glocal.export import export as exporting
from glocal.export.export import export
from glocal.recognizer import Recognizer
from glocal_runtime import Recognizer as Exported
from glocal_runtime.errors import DataError, RecipeError, WeightsError
from glocal_runtime.folder import MANIFEST
from glocal_runtime.graphs import EMBED
from glocal_runtime.verify import TOLERANCE, relative
from photos import recognizer, some, write_classes
from tiny_models import tiny_model

QUERIES = [*some("zero", 20, 24), *some("two", 20, 24), *some("seven", 0, 4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GEL on a ResNet-12, three classes of five digits."""
    place = tmp_path_factory.mktemp("export") / "digits"
    traced_once(recognizer(), place)
    return place


def assert_same(ours: Recognizer, theirs: Exported, images: list[np.ndarray]) -> None:
    for a, b in zip(ours.predict(images), theirs.predict(images), strict=True):
        assert relative(a.open_score, b.open_score) <= TOLERANCE
        assert relative(a.threshold, b.threshold) <= TOLERANCE
        assert (a.nearest, a.warning, a.path) == (b.nearest, b.warning, b.path)
        assert a.probabilities == pytest.approx(b.probabilities, abs=1e-3)
        if relative(a.threshold, a.open_score) > 10 * TOLERANCE:
            assert a.label == b.label


def test_the_answers_of_the_file(folder: Path) -> None:
    assert_all_the_same(recognizer(), Exported.load(folder))


def test_the_answers_of_a_method_without_patches(tmp_path: Path) -> None:
    photos = {"zero": some("zero", 0, 5), "one": some("one", 0, 4), "two": some("two", 0, 1)}
    ours = Recognizer.enroll(photos, model=tiny_model("protonet"), device="cpu", max_false_unknown=0.2)
    found = export(ours, tmp_path / "plain")
    assert found.difference <= TOLERANCE
    assert_all_the_same(ours, Exported.load(tmp_path / "plain"))


def assert_all_the_same(ours: Recognizer, theirs: Exported) -> None:
    assert theirs.classes == ours.classes
    assert theirs.threshold == ours.threshold
    assert_same(ours, theirs, QUERIES)
    assert all(each.same for each in theirs.verify())
    assert [str(each) for each in theirs.findings()] == [str(each) for each in ours.findings()]


def test_the_same_changes_lead_to_the_same_answers(folder: Path) -> None:
    ours, theirs = recognizer(), Exported.load(folder)
    for who in (ours, theirs):
        who.add_class("seven", some("seven", 30, 34))
        who.add_photos("one", some("one", 30, 31))
        who.remove_class("two")
    assert theirs.classes == ours.classes == ("zero", "one", "seven")
    assert relative(ours.threshold.value, theirs.threshold.value) <= TOLERANCE
    assert theirs.threshold.source == ours.threshold.source
    assert_same(ours, theirs, QUERIES)


def test_reasons_count_the_same_patches(folder: Path) -> None:
    for a, b in zip(recognizer().predict(QUERIES), Exported.load(folder).predict(QUERIES), strict=True):
        assert a.reason.split("; ")[0] == b.reason.split("; ")[0]


def test_a_manifest_says_what_it_is(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["model"]["method"] == "gel"
    assert manifest["model"]["precision"] == "float32"
    assert manifest["report"]["difference"] <= TOLERANCE
    assert [each["name"] for each in manifest["classes"]] == ["zero", "one", "two"]
    assert (folder / "glocal_runtime" / "__main__.py").is_file()
    assert not [each for each in folder.parent.iterdir() if each.name.startswith(".")], "nothing is left over"


def test_graphs_that_answer_otherwise_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = recognizer()
    method = other.contents.brain.model.method
    monkeypatch.setattr(method, "temperature", 1.01 * method.temperature)
    with pytest.raises(WeightsError, match=r"is not written: .* away from the model"):
        traced_once(other, tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


def test_an_older_export_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="is no export of glocal"):
        export(recognizer(), mine)
    assert (mine / "letter.txt").read_text() == "dear"
    place = tmp_path / "digits"
    traced_once(recognizer(), place)
    traced_once(recognizer({"zero": 5, "one": 5}), place)
    assert Exported.load(place).classes == ("zero", "one")
    with pytest.raises(DataError, match="is a file, not a folder"):
        export(recognizer(), mine / "letter.txt" / "export")


def test_int8_is_measured_and_verifies_by_its_own_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = graphs("embedded-gel")
    monkeypatch.setattr(exporting, "trace", lambda model: whole)
    file, place = tmp_path / "digits.glocal", tmp_path / "small"
    recognizer().save(file)
    labelled = write_classes(tmp_path / "labelled", ["zero", "one", "two"], 40, 44)
    write_classes(labelled, ["seven"], 40, 46).joinpath("seven").rename(labelled / "unknown")
    found = CliRunner().invoke(
        app, ["export", str(file), "-o", str(place), "--int8", "--check", str(labelled), "--json", "--device", "cpu"]
    )
    assert found.exit_code == 0, found.output
    report = json.loads(found.stdout)
    assert report["precision"] == "int8"
    assert report["agreement"]["pictures"] == 18
    assert report["before"]["acc"] - report["after"]["acc"] <= 0.1
    assert report["before"]["auroc"] - report["after"]["auroc"] <= 0.1
    assert report["difference"] > TOLERANCE, "8 bits cannot be that exact"
    assert report["bytes"][EMBED] < len(whole[EMBED]) / 2
    small = Exported.load(place)
    assert all(each.same for each in small.verify())
    assert small.contents.facts.precision == "int8"
    told = traced_once(recognizer(), place, int8=True)
    assert told.measured_on.startswith("thumbnails of the 15 support photos")
    assert told.before is not None
    assert told.before.acc >= 0.8


def test_another_format_is_refused(tmp_path: Path) -> None:
    recognizer(model="embedded-protonet").save(tmp_path / "a.glocal")
    found = CliRunner().invoke(app, ["export", str(tmp_path / "a.glocal"), "-o", str(tmp_path / "b"), "--format", "x"])
    assert isinstance(found.exception, RecipeError)
    assert "must be one of onnx" in str(found.exception)
