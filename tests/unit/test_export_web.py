"""A recognizer as a static page: what the folder holds, and when nothing is written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glocal.common.errors import DataError
from glocal.recognizer import Recognizer
from glocal.web.export import export_web
from photos import some

TAUGHT = {"zero": some("zero", 0, 4), "one": some("one", 0, 4), "two": some("two", 0, 4)}
RUNTIME = {"ort.wasm.bundle.min.mjs": b"export {}", "ort.wasm.gz": b"packed"}


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the package glocal-web, which may not be installed."""
    package = tmp_path / "packages" / "glocal_web"
    (package / "runtime").mkdir(parents=True)
    (package / "__init__.py").write_text("from pathlib import Path\nRUNTIME = Path(__file__).parent / 'runtime'\n")
    (package / "LICENSE").write_text("MIT")
    for name, data in RUNTIME.items():
        (package / "runtime" / name).write_bytes(data)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.delitem(sys.modules, "glocal_web", raising=False)


def arrays(page: Path, about: dict[str, Any]) -> dict[str, Any]:
    data = (page / "arrays.bin").read_bytes()
    return {
        name: np.frombuffer(data, each["dtype"], int(np.prod(each["shape"])), each["offset"]).reshape(each["shape"])
        for name, each in about["arrays"].items()
    }


@pytest.mark.usefixtures("runtime")
def test_a_page_holds_all_that_an_answer_needs(tmp_path: Path) -> None:
    recognizer = Recognizer.enroll(TAUGHT, head="ridge")
    size = export_web(recognizer, tmp_path / "page", name="digits")
    files = {
        each.relative_to(tmp_path / "page").as_posix() for each in (tmp_path / "page").rglob("*") if each.is_file()
    }
    assert size == sum((tmp_path / "page" / name).stat().st_size for name in files)
    about = json.loads((tmp_path / "page" / "recognizer.json").read_text())
    assert (about["name"], about["classes"]) == ("digits", ["zero", "one", "two"])
    assert about["threshold"]["value"] == recognizer.threshold.value
    assert {each["graph"] for each in about["members"]} <= files
    worker = (tmp_path / "page" / "sw.js").read_text()
    kept = json.loads(worker.split("const FILES = ")[1].split(";")[0])
    assert set(kept) == (files - {"sw.js"}) | {"./"}  # the worker itself is the browser's to keep
    assert recognizer.contents.identity in worker

    # The scores of a photo by the arrays of the page and the formula of the head are those of the recognizer.
    table, head = arrays(tmp_path / "page", about), about["head"]
    photos = recognizer.contents.support.bank.features.full()
    kernel = photos.vec @ table["vec"].T
    whole = photos.vec @ table["proto"].T + head["weight"] * (kernel @ table["alpha"])[:, :-1]
    expected = recognizer.compare(photos)
    best = expected.logits.argmax(axis=1)
    own = head["weight"] * (kernel @ table["alpha"])[:, -1] - whole[np.arange(len(best)), best]
    assert np.allclose(own, expected.parts["E_c"], atol=1e-5)
    assert table["cells.0"].dtype == np.float16
    assert len(table["cells.0"]) == len(photos)


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize(("head", "needed"), [("prototypes", {"proto"}), ("gel", {"state_0"})])
def test_other_heads(tmp_path: Path, head: str, needed: set[str]) -> None:
    export_web(Recognizer.enroll(TAUGHT, head=head), tmp_path / "page")
    about = json.loads((tmp_path / "page" / "recognizer.json").read_text())
    assert about["head"]["kind"] == ("prototypes" if head == "prototypes" else "converted")
    assert needed <= about["arrays"].keys()


@pytest.mark.usefixtures("runtime")
def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    with pytest.raises(DataError, match="there already"):
        export_web(Recognizer.enroll(TAUGHT), tmp_path / "page")
    assert not list((tmp_path / "page").iterdir())


def test_without_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "glocal_web", None)
    with pytest.raises(DataError, match="glocal-web"):
        export_web(Recognizer.enroll(TAUGHT), tmp_path / "page")
    assert not (tmp_path / "page").exists()
