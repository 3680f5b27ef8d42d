"""Exports say what their files say: every method that answers one by one, and 500 real photos."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from glocal.recognizer import Recognizer
from glocal.recognizer.enrolled import TOLERANCE
from glocal.recognizer.features import Array
from glocal.recognizer.model import OnnxModel
from glocal.research.convert.onnx import export
from glocal.research.convert.tracing import trace
from glocal.research.engine.checkpoint import Model
from glocal.research.methods import METHODS
from glocal.research.torch_model import TorchHead
from tiny_models import tiny_base, tiny_model

SUPPORTS = ((3, 1, 2), (2, 2), (1,) * 8, (5,))
EXACT = 1e-5


def ready(name: str) -> Model:
    model = tiny_model(name)
    model.backbone.eval(), model.method.eval()
    if model.method.needs_base:
        model.method.set_base(tiny_base(model.backbone.channels))
    return model


def inductive() -> list[str]:
    return [name for name, method in METHODS.items() if not method.transductive]


def assert_close(ours: Array, theirs: Array) -> None:
    assert ours.shape == theirs.shape
    assert (np.abs(ours - theirs) <= EXACT * np.maximum(1, np.abs(ours))).all()


@pytest.mark.long
@pytest.mark.parametrize("name", inductive())
def test_its_graphs_say_what_it_says(name: str) -> None:
    model = ready(name)
    preprocess, min_way = model.backbone.preprocess, model.method.min_way
    exported = OnnxModel(name, name, model.method.open_score, min_way, preprocess, graphs=trace(model))
    head, rng = TorchHead(model.method), np.random.default_rng(0)

    def pictures(n: int) -> Array:
        return rng.integers(0, 256, (n, preprocess.size, preprocess.size, 3), dtype=np.uint8)

    for shots in SUPPORTS:
        if len(shots) < min_way:
            continue
        label = np.repeat(np.arange(len(shots)), shots)
        support = exported.embed(pictures(len(label)))
        for n in (1, 4, 9):
            query = exported.embed(pictures(n))
            ours = head.compare(head.enroll(support, label), query)
            theirs = exported.compare(exported.enroll(support, label), query)
            assert_close(ours.logits, theirs.logits)
            assert_close(ours.open_score, theirs.open_score)
            assert ours.parts.keys() == theirs.parts.keys()
            for part, value in ours.parts.items():
                assert_close(value, theirs.parts[part])


SHOTS, PER_CLASS, PHOTOS = 5, 25, 500


def photos() -> Path:
    home = os.environ.get("GLOCAL_DATA")
    folder = Path(home or "") / "caltech-photos"
    if not home or not folder.is_dir():
        pytest.skip("needs the pictures of caltech-photos below GLOCAL_DATA")
    return folder


@pytest.mark.long
@pytest.mark.parametrize("model", ["photos-gel", "tiered-64-cpu/gel-5shot"])
def test_the_same_labels_on_500_photos(model: str, tmp_path: Path) -> None:
    if "/" in model:
        pytest.importorskip("glocal_models", reason="the research heads are not installed: pip install ./models")
    folders = {each.name: sorted(each.glob("*.jpg")) for each in sorted(photos().iterdir()) if each.is_dir()}
    known = list(folders)[::7][:12]
    labelled = {name: folders[name][SHOTS : SHOTS + PER_CLASS] for name in known}
    others = [path for name, paths in folders.items() if name not in known for path in paths[:4]]
    labelled["unknown"] = others[: PHOTOS - sum(map(len, labelled.values()))]
    who = Recognizer.enroll({name: folders[name][:SHOTS] for name in known}, model=model, device="cpu")
    found = export(who, tmp_path / "export.glocal", labelled=labelled)
    assert found.agreement.pictures == PHOTOS
    assert found.agreement.same_label + found.agreement.at_threshold == PHOTOS
    assert found.agreement.largest_difference <= TOLERANCE
    assert found.after.acc == pytest.approx(found.before.acc, abs=0.005)
    assert found.after.auroc == pytest.approx(found.before.auroc, abs=0.005)
