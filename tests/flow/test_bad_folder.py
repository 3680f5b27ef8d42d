"""The folder people really have: photos among damaged, tiny, huge and false ones; ``test_images`` has each alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from glocal.research.data.dataset import ClassDataset
from pictures import png, png_claiming, write_classes, write_file

NOISE = png(np.random.default_rng(1).integers(0, 256, (48, 64, 3), dtype=np.uint8))
BAD = {  # file -> content, the reason told
    "mug/truncated.png": (NOISE[: len(NOISE) // 2], "damaged, truncated"),
    "mug/text.png": (b"Dear diary, I am not a picture.\n" * 20, "not a picture in any format"),
    "lamp/dot.png": (png(np.zeros((1, 1, 3), np.uint8)), "at least 8 pixels, got 1x1"),
    "lamp/huge.png": (png_claiming(30_000, 30_000), "89,478,485 pixels"),
}


def test_bad_pictures_are_named_or_left_out(glocal: Any, tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "photos", "mug", "lamp", per_class=4)
    clean = ClassDataset.from_folder(folder)
    for file, (content, _) in BAD.items():
        write_file(folder / file, content)
    command = ["evaluate", "embedded-protonet", "--dataset", folder, "--split", "all", "--way", "1"]
    command += ["--unknown-way", "1", "--query", "2", "--tasks", "3", "--device", "cpu", "--json"]
    code, _, err = glocal(*command)
    assert (code, "4 images" in err, "--skip-bad" in err) == (2, True, True)
    assert all(str(folder / file) in err and reason in err for file, (_, reason) in BAD.items())
    code, out, err = glocal(*command, "--skip-bad")
    assert code == 0, err
    assert all(f"left out {folder / file}" in err and reason in err for file, (_, reason) in BAD.items())
    assert len(json.loads(out)["skipped"]) == len(BAD)
    assert ClassDataset.from_folder(folder, skip_bad=True).manifest == clean.manifest
