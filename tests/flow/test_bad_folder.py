"""The folder people really have: photos among damaged, tiny, huge and false ones; ``test_images`` has each alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile
from typer.testing import CliRunner

from glocal.cli.main import app
from glocal.data.dataset import ClassDataset
from glocal_runtime.errors import DataError
from hostile_files import png_claiming
from refusal import refused

REASONS = {
    "truncated.jpg": "damaged, truncated",
    "text.png": "not a picture in any format",
    "dot.png": "at least 8 pixels, got 1x1",
    "huge.png": "89,478,485 pixels",
}


@pytest.fixture
def folder(tmp_path: Path, own_cache: Path) -> Path:
    root, rng = tmp_path / "photos", np.random.default_rng(0)
    for name in ("mug", "lamp"):
        (root / name).mkdir(parents=True)
        for i in range(4):
            noise = rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)
            Image.fromarray(noise).save(root / name / f"{i}.jpg", quality=92)
    whole = (root / "mug" / "0.jpg").read_bytes()
    (root / "mug" / "truncated.jpg").write_bytes(whole[: len(whole) // 2])
    (root / "mug" / "text.png").write_text("Dear diary, I am not a picture.\n" * 20)
    Image.new("RGB", (1, 1)).save(root / "lamp" / "dot.png")
    (root / "lamp" / "huge.png").write_bytes(png_claiming(30_000, 30_000))
    return root


def test_every_bad_picture_is_named_with_its_reason_or_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("bad-pictures", "4 pictures", "--skip-bad", *REASONS, *REASONS.values()):
        ClassDataset.from_folder(folder)
    unpacked: list[tuple[int, int]] = []
    load = ImageFile.ImageFile.load
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: unpacked.append(image.size) or load(image))
    data = ClassDataset.from_folder(folder, skip_bad=True)
    assert (64, 48) in unpacked
    assert (30_000, 30_000) not in unpacked  # refused by its header: nobody's memory was at stake
    assert {Path(bad.where).name for bad in data.skipped} == REASONS.keys()
    assert all(REASONS[Path(bad.where).name] in bad.reason for bad in data.skipped)
    assert dict(zip(data.classes, data.counts.tolist(), strict=True)) == {"mug": 4, "lamp": 4}
    for bad in data.skipped:  # removing them by hand gives the same data set
        Path(bad.where).unlink()
    clean = ClassDataset.from_folder(folder)
    assert (clean.skipped, clean.manifest) == ((), data.manifest)


def test_the_command_line_names_them_and_goes_on_when_asked(folder: Path) -> None:
    command = ["evaluate", "embedded-protonet", "--dataset", str(folder), "--split", "all", "--way", "1"]
    command += ["--unknown-way", "1", "--query", "2", "--tasks", "3", "--device", "cpu", "--json"]
    refusal = CliRunner().invoke(app, command)
    assert isinstance(refusal.exception, DataError)  # main() prints it as a sentence and exits with 2
    used = CliRunner().invoke(app, [*command, "--skip-bad"])
    assert used.exit_code == 0, used.output
    for name, reason in REASONS.items():
        assert any(f"left out {where}" in used.stderr and reason in used.stderr for where in folder.rglob(name)), name
    assert len(json.loads(used.stdout)["skipped"]) == len(REASONS)
