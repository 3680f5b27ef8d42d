"""A file with ONNX graphs where torch is not installed: the command line and the library."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import glocal
from exports import onnx_recognizer
from glocal.recognizer.enrolled import TOLERANCE, relative
from glocal.research.convert.onnx import export
from photos import recognizer, write, write_classes

SOURCE = Path(glocal.__file__).parents[1]
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
NEEDED = ("numpy", "pillow", "onnxruntime", "typer")
# What glocal needs elsewhere and must not need here (typer brings pydantic); None makes an import fail.
BLOCK = """
import sys
for name in ("torch", "safetensors", "filelock", "matplotlib", "sklearn", "onnx"):
    sys.modules[name] = None
"""
COMMAND = BLOCK + "from glocal.cli.main import main\nmain()"


def run(python: Path, code: str, *words: object, status: int = 0) -> str:
    command = [str(python), "-c", code, *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def walk(python: Path, code: str, file: Path, home: Path) -> None:
    """Predict, add, explain, verify, check, enroll, by the command line, against the answers of torch."""
    photos = [*write(home / "photos", "one", 20, 23), *write(home / "photos", "six", 23, 25)]
    expected = recognizer().predict(photos)
    for answer, there in zip(json.loads(run(python, code, "predict", file, *photos, "--json")), expected, strict=True):
        assert answer["label"] == there.label
        assert relative(there.open_score, answer["open_score"]) <= TOLERANCE
    assert "the same answers" in run(python, code, "inspect", file, "--verify")
    run(python, code, "add", file, "six", photos[-1])
    assert "six   1 photo" in run(python, code, "classes", file)
    run(python, code, "predict", file, photos[0], "--explain", home / "why")
    assert next((home / "why").iterdir()).read_bytes().startswith(b"\x89PNG")
    labelled = write_classes(home / "labelled", ["one", "two"], 30, 33)
    assert "unknowns caught  no pictures" in run(python, code, "check", file, labelled)
    run(python, code, "enroll", labelled, "-o", home / "new.glocal", "--model", file)
    assert "one" in run(python, code, "classes", home / "new.glocal")


def test_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "digits.glocal"
    onnx_recognizer().save(file)
    walk(Path(sys.executable), COMMAND, file, tmp_path)
    recognizer().save(tmp_path / "torch.glocal")
    said = run(Path(sys.executable), COMMAND, "predict", tmp_path / "torch.glocal", file, status=2)
    assert said.startswith("glocal: the model in")
    assert "a checkpoint needs torch, which is not installed" in said


def test_the_library(tmp_path: Path) -> None:
    onnx_recognizer().save(tmp_path / "digits.glocal")
    [photo] = write(tmp_path / "photos", "one", 20, 21)
    code = f"""{BLOCK}
from glocal.recognizer import Recognizer
who = Recognizer.load({str(tmp_path / "digits.glocal")!r})
print(who.predict({str(photo)!r})[0].label)
who.add_class("six", {str(photo)!r})
who.save({str(tmp_path / "more.glocal")!r})
assert all(each.same for each in who.verify())
assert who.explain({str(photo)!r}).width > 500
print(sorted(name for name in sys.modules if name.startswith("glocal.research")))
"""
    assert run(Path(sys.executable), code) == "one\n[]\n", "of glocal itself nothing is needed"


def test_onnxruntime_is_needed_only_by_graphs(tmp_path: Path) -> None:
    onnx_recognizer().save(tmp_path / "digits.glocal")
    code = COMMAND.replace('"torch", ', '"onnxruntime", ')
    said = run(Path(sys.executable), code, "predict", tmp_path / "digits.glocal", tmp_path, status=2)
    assert "needs onnxruntime: pip install onnxruntime" in said


@pytest.mark.long
def test_four_packages_are_all_it_needs(tmp_path: Path) -> None:
    """In an environment of its own, with the versions that everything was tested with."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    versions = dict(re.split("==", line, maxsplit=1) for line in lines if "==" in line and not line.startswith("#"))
    pinned = {name.lower(): f"{name}=={version}" for name, version in versions.items()}
    python = tmp_path / "fresh" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "fresh")], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    got = subprocess.run([*install, *(pinned.get(name, name) for name in NEEDED)], capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"pip cannot install {', '.join(NEEDED)}: {got.stderr.strip()[-200:]}")
    export(recognizer(), tmp_path / "digits.glocal")
    walk(python, "from glocal.cli.main import main\nmain()", tmp_path / "digits.glocal", tmp_path)
    listed = json.loads(subprocess.run([str(python), "-m", "pip", "list", "--format=json"], capture_output=True).stdout)
    assert not {each["name"].lower() for each in listed} & {"torch", "glocal", "safetensors"}
