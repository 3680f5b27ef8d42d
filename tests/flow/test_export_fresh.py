"""An export on a machine that has numpy, Pillow and onnxruntime and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from glocal.export.export import export
from glocal_runtime.verify import TOLERANCE, relative
from photos import recognizer, write

NEEDED = ("numpy", "pillow", "onnxruntime")
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"


def pinned() -> list[str]:
    """The three in the versions that everything was tested with."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    versions = dict(re.split("==", line, maxsplit=1) for line in lines if "==" in line and not line.startswith("#"))
    by_name = {name.lower(): version for name, version in versions.items()}
    return [f"{name}=={by_name[name]}" if name in by_name else name for name in NEEDED]


@pytest.mark.long
def test_three_packages_are_all_it_needs(tmp_path: Path) -> None:
    python = tmp_path / "fresh" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "fresh")], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pinned()]
    got = subprocess.run(install, capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"pip cannot install {', '.join(NEEDED)}: {got.stderr.strip()[-200:]}")
    who = recognizer()
    export(who, tmp_path / "digits")
    photos = [*write(tmp_path / "photos", "one", 20, 23), *write(tmp_path / "photos", "six", 23, 25)]

    def run(*words: str) -> str:
        command = [str(python), "-m", "glocal_runtime", *words]
        done = subprocess.run(command, cwd=tmp_path / "digits", capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "the same answers" in run("verify", ".")
    answers = [json.loads(line) for line in run("predict", ".", *map(str, photos), "--json").splitlines()]
    for answer, expected in zip(answers, who.predict(photos), strict=True):
        assert answer["label"] == expected.label
        assert relative(expected.open_score, answer["open_score"]) <= TOLERANCE
    run("add", ".", "six", str(photos[-1]))
    assert "class six: 1 photos" in run("info", ".")
    run("explain", ".", str(photos[0]), "-o", str(tmp_path / "why.png"))
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")
    listed = json.loads(subprocess.run([str(python), "-m", "pip", "list", "--format=json"], capture_output=True).stdout)
    assert not {each["name"].lower() for each in listed} & {"torch", "glocal", "safetensors", "pydantic"}
