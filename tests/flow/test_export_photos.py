"""Real photos: an export names 500 of them as its file does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from glocal.export.onnx import export
from glocal_runtime import Recognizer
from glocal_runtime.enrolled import TOLERANCE

SHOTS, PER_CLASS, PHOTOS = 5, 25, 500


def photos() -> Path:
    home = os.environ.get("GLOCAL_DATA")
    folder = Path(home or "") / "caltech-photos"
    if not home or not folder.is_dir():
        pytest.skip("needs the pictures of caltech-photos below GLOCAL_DATA")
    return folder


@pytest.mark.long
@pytest.mark.parametrize("model", ["photos-gel", "tiered-64-cpu/ahead-5shot"])
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
