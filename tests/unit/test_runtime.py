"""The runtime alone: enroll, save, explain, damage, and no torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from exports import traced_once
from glocal.recognizer import Recognizer as Full
from glocal_runtime import Recognizer
from glocal_runtime.__main__ import main
from glocal_runtime.errors import DataError, GlocalError, RecipeError
from glocal_runtime.folder import MANIFEST
from glocal_runtime.tensors import pack, unpack
from glocal_runtime.verify import TOLERANCE, relative
from photos import some, write, write_classes

MODEL = "embedded-gel"
CLASSES = {"zero": some("zero", 0, 4), "one": some("one", 0, 4), "two": some("two", 0, 3)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made") / "tiny"
    traced_once(Full.enroll(CLASSES, model=MODEL, device="cpu"), place)
    return place


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """One's own copy."""
    shutil.copytree(made, tmp_path / "tiny")
    return tmp_path / "tiny"


def test_enrolling_anew_is_what_glocal_does(folder: Path) -> None:
    photos = {"six": some("six", 0, 5), "four": some("four", 0, 2)}
    aside = some("nine", 0, 4)
    ours = Full.enroll(photos, model=MODEL, unknown=aside, device="cpu", per_class=True)
    theirs = Recognizer.enroll(photos, model=folder, unknown=aside, per_class=True)
    assert theirs.classes == ours.classes
    assert relative(ours.threshold.value, theirs.threshold.value) <= TOLERANCE
    assert theirs.threshold.per_class == pytest.approx(ours.threshold.per_class, abs=1e-4)
    for a, b in zip(ours.contents.decision.left_out, theirs.contents.decision.left_out, strict=True):
        assert (a.photo, a.label, a.shots, a.nearest) == (b.photo, b.label, b.shots, b.nearest)
        assert a.score == pytest.approx(b.score, abs=1e-4)
    for name, range_ in ours.contents.decision.usual.items():
        assert theirs.contents.decision.usual[name] == pytest.approx(range_, abs=1e-3)


def test_changes_survive_a_save(folder: Path, tmp_path: Path) -> None:
    who = Recognizer.load(folder)
    before = {each.name for each in folder.iterdir()}
    who.add_class("six", some("six", 0, 3))
    who.save(folder)
    assert len(list(folder.glob("bank-*"))) == 1
    assert {each.name for each in folder.iterdir()} != before, "another bank"
    who.save(tmp_path / "moved")
    queries = some("six", 9, 12)
    for place in (folder, tmp_path / "moved"):
        again = Recognizer.load(place)
        assert again.classes == ("zero", "one", "two", "six")
        assert again.predict(queries) == who.predict(queries)
        assert all(each.same for each in again.verify())
    with pytest.raises(DataError, match="is there already"):
        who.save(tmp_path)


def test_a_save_that_is_cut_short_leaves_the_old_classes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    who = Recognizer.load(folder)
    who.remove_class("one")
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(DataError, match="what was there before is unchanged"):
        who.save(folder)
    monkeypatch.undo()
    assert Recognizer.load(folder).classes == ("zero", "one", "two")


def test_one_class_and_many_photos_are_fine(folder: Path) -> None:
    who = Recognizer.enroll({"one": some("one", 0, 20)}, model=folder)
    assert len(who.contents.decision.left_out) == 20
    assert who.predict(some("one", 30, 31))[0].nearest == "one"
    with pytest.raises(DataError, match="'one' is the only class"):
        who.remove_class("one")


def test_an_explanation_is_the_picture_that_glocal_draws(folder: Path) -> None:
    from glocal_runtime.explain import explain

    ours = Full.enroll(CLASSES, model=MODEL, device="cpu")
    [found] = ours.batches(some("one", 20, 21))
    expected = explain(ours, found.batch, 0, found.answers[0])
    image = Recognizer.load(folder).explain(some("one", 20, 21)[0])
    assert image.size == expected.size
    different = (np.asarray(image).astype(int) - np.asarray(expected)).any(axis=2).mean()
    assert different < 0.02, "a digit of a score may differ in its last place"


def test_the_command_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = write(tmp_path / "photos", "six", 0, 3)
    assert main(["predict", str(folder), str(tmp_path / "photos"), "--json"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["path"] for each in answers] == list(map(str, photos))
    assert main(["add", str(folder), "six", *map(str, photos)]) == 0
    assert "4 classes, 14 photos" in capsys.readouterr().out
    assert main(["verify", str(folder)]) == 0
    assert "the same answers" in capsys.readouterr().out
    assert main(["predict", str(folder), str(photos[0])]) == 0
    assert "this is the support photo" in capsys.readouterr().out
    assert main(["explain", str(folder), str(photos[0]), "-o", str(tmp_path / "why.png")]) == 0
    with Image.open(tmp_path / "why.png") as image:
        assert image.width > 500
    assert main(["remove", str(folder), "six"]) == 0
    assert main(["info", str(folder)]) == 0
    assert "class two: 3 photos" in capsys.readouterr().out


def test_one_sentence_for_what_goes_wrong(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no picture")
    assert main(["predict", str(tmp_path), str(bad)]) == 2
    assert "is not an export of glocal" in capsys.readouterr().err
    assert main(["predict", str(folder), str(bad)]) == 2
    assert "not a picture" in capsys.readouterr().out
    assert main(["remove", str(folder), "none"]) == 2
    assert capsys.readouterr().err == "glocal_runtime: there is no class 'none'; the classes are zero, one, two\n"


@pytest.mark.parametrize("name", ["embed.onnx", "enroll.onnx", "score.onnx", "bank"])
def test_damage_is_noticed(folder: Path, name: str) -> None:
    path = next(folder.glob(f"{name}*"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="not what was written; copy the folder again"):
        Recognizer.load(folder)
    path.unlink()
    with pytest.raises(DataError, match="is missing"):
        Recognizer.load(folder)


def test_every_broken_manifest_is_a_sentence(folder: Path) -> None:
    whole = json.loads((folder / MANIFEST).read_text())
    broken = [{**whole, key: value} for key in whole for value in (None, 7, "x", [], {}, [{"name": "../x"}])]
    broken += [{key: value for key, value in whole.items() if key != gone} for gone in whole]
    accepted = 0
    for each in broken:
        (folder / MANIFEST).write_text(json.dumps(each))
        with suppress(GlocalError):
            Recognizer.load(folder)
            accepted += 1
    assert accepted <= 20, "version, report and the like may be anything"
    (folder / MANIFEST).write_text(json.dumps({**whole, "schema_version": 99}))
    with pytest.raises(DataError, match="written by another glocal"):
        Recognizer.load(folder)


def test_too_few_classes_are_refused(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["model"]["min_way"] = 3
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(RecipeError, match="needs at least 3 classes, got 2"):
        Recognizer.load(folder).remove_class("one")


def test_safetensors_are_those_of_the_library() -> None:
    from safetensors.numpy import load, save

    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.ones((1, 0, 2), np.float16),
        "c": np.arange(5, dtype=np.uint8),
        "d": np.array([-1, 2], np.int64),
    }
    for data, read in ((pack(arrays), load), (save(arrays), lambda data: unpack(data, "here"))):
        found = read(data)
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)


def test_no_bytes_make_the_reader_fail_otherwise() -> None:
    data = pack({"a": np.arange(6, dtype=np.float32)})
    rng = np.random.default_rng(0)
    for _ in range(500):
        bad = bytearray(data[: rng.integers(0, len(data) + 1)])
        for place in rng.integers(0, max(1, len(bad)), 3):
            if bad:
                bad[place] = rng.integers(0, 256)
        with suppress(DataError):
            unpack(bytes(bad), "here")


def test_it_runs_from_the_folder_without_torch(folder: Path, tmp_path: Path) -> None:
    [photo] = write(tmp_path / "photos", "one", 20, 21)
    code = (
        "import sys, runpy\n"
        f"sys.argv = ['glocal_runtime', 'predict', '.', {str(photo)!r}]\n"
        "try:\n    runpy.run_module('glocal_runtime', run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "import glocal_runtime\n"
        "print(glocal_runtime.__file__)\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'glocal', 'pydantic', 'safetensors'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    *_, where, imported = done.stdout.splitlines()
    assert Path(where).parent == folder / "glocal_runtime"
    assert imported == "[]"
    assert str(photo) in done.stdout


def test_parts_of_it_work_without_onnxruntime() -> None:
    code = "import sys; sys.modules['onnxruntime'] = None; import glocal.recognizer, glocal.cli.main, glocal.cli.export"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_folders_of_classes_are_read(folder: Path, tmp_path: Path) -> None:
    root = write_classes(tmp_path / "digits", ["six", "four"], 0, 2)
    assert Recognizer.enroll(root, model=folder).classes == ("four", "six")
    with pytest.raises(DataError, match="there is no such folder"):
        Recognizer.enroll(tmp_path / "nothing", model=folder)
