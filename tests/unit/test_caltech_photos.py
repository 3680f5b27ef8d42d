"""The rule that divides the Caltech photos, on folders made here."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glocal.data.registry import open_dataset
from glocal_runtime.errors import DataError


def make(folder: Path, classes: int) -> None:
    rng = np.random.default_rng(0)
    for c in range(classes):
        (folder / f"class {c}").mkdir(parents=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"class {c}" / "0.png")


def test_classes_are_divided_by_the_hash_of_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "caltech-photos", 100)
    monkeypatch.setenv("GLOCAL_DATA", str(tmp_path))
    ranked = sorted((hashlib.sha256(f"class {c}".encode()).hexdigest(), f"class {c}") for c in range(100))
    parts = {split: set(open_dataset("caltech-photos", split).classes) for split in ("train", "val", "test")}
    assert parts["train"] == {name for _, name in ranked[:60]}
    assert parts["val"] == {name for _, name in ranked[60:75]}
    assert parts["test"] == {name for _, name in ranked[75:]}


def test_missing_or_other_photos_are_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOCAL_DATA", raising=False)
    with pytest.raises(DataError, match=r"below GLOCAL_DATA \(not set\); there is none"):
        open_dataset("caltech-photos", "test")
    make(tmp_path / "caltech-photos", 3)
    monkeypatch.setenv("GLOCAL_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"has 100 classes, but .* has 3"):
        open_dataset("caltech-photos", "test")
