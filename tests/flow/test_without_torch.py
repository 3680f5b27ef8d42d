"""All that has to do with photos works where torch is not installed; the rest says what to install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import glocal
from photos import write, write_classes

ROOT = Path(__file__).parents[2]
SOURCE = Path(glocal.__file__).parents[1]
# What the light half must not need; None makes an import fail.
BLOCK = """
import sys
for name in ("torch", "onnx", "onnxscript", "matplotlib", "sklearn", "efficientnet_lite_pytorch"):
    sys.modules[name] = None
"""
COMMAND = BLOCK + "from glocal.cli.main import main\nmain()"


def run(python: Path, code: str, *words: object, status: int = 0) -> str:
    command = [str(python), "-c", code, *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def walk(python: Path, code: str, home: Path) -> None:
    """Enroll, predict, add, explain, verify, check, threshold, many photos, by the command line."""
    file = home / "digits.glocal"
    taught = write_classes(home / "taught", ["zero", "one"], 0, 4)
    photos = [*write(home / "photos", "one", 20, 22), *write(home / "photos", "zero", 23, 24)]
    run(python, code, "enroll", taught, "-o", file)
    answers = json.loads(run(python, code, "predict", file, *photos, "--json"))
    assert [answer["nearest"] for answer in answers] == ["one", "one", "zero"]
    run(python, code, "add", file, "six", *write(home / "six", "six", 0, 3))
    assert "the same answers" in run(python, code, "inspect", file, "--verify")
    assert "six   3 photos" in run(python, code, "classes", file)
    run(python, code, "predict", file, photos[0], "--explain", home / "why")
    assert next((home / "why").iterdir()).read_bytes().startswith(b"\x89PNG")
    assert "unknowns caught  no pictures" in run(python, code, "check", file, taught)
    run(python, code, "threshold", file, "--target-rate", "0.2")
    run(python, code, "predict", file, home / "photos", "--csv", home / "answers.csv")
    assert len((home / "answers.csv").read_text().splitlines()) == 4


def test_the_command_line(tmp_path: Path) -> None:
    walk(Path(sys.executable), COMMAND, tmp_path)


NEED_TORCH = (
    ["evaluate", "embedded-gel", "--dataset", "embedded"],
    ["train", "demo-gel", "-o", "{}/run"],
    ["enroll", "{}", "-o", "{}/a", "--model", "{}"],
)


@pytest.mark.parametrize("words", NEED_TORCH, ids=[words[0] for words in NEED_TORCH])
def test_what_needs_torch_says_what_to_install(words: list[str], tmp_path: Path) -> None:
    said = run(Path(sys.executable), COMMAND, *(word.format(tmp_path) for word in words), status=2)
    assert said.endswith(", which is not installed: pip install 'glocal[research]'\n")
    assert len(said.splitlines()) == 1


def test_the_list_says_what_there_is_and_what_to_install(tmp_path: Path) -> None:
    said = run(Path(sys.executable), COMMAND, "list")
    assert all(f"\n  {name} " in said for name in ("fast", "ridge", "prototypes", "gel"))
    assert said.endswith("pip install 'glocal[research]'\n")
    assert json.loads(run(Path(sys.executable), COMMAND, "list", "heads", "--json"))["heads"] == [
        "ridge",
        "prototypes",
        "gel",
    ]


def test_the_demo_teaches_asks_explains_and_reports(tmp_path: Path) -> None:
    run(Path(sys.executable), COMMAND, "demo", "--out", tmp_path / "out")
    report = (tmp_path / "out" / "demo-report.html").read_text()
    assert "<h3>gel</h3>" in report
    assert "glocal[research]" in report
    assert (tmp_path / "out" / "digits.glocal").exists()


def test_the_library_and_the_server(tmp_path: Path) -> None:
    taught = write_classes(tmp_path / "taught", ["zero", "one"], 0, 4)
    code = f"""{BLOCK}
import glocal, glocal.serve.app, glocal.bulk.rows
from glocal import Recognizer
who = Recognizer.enroll({str(taught)!r}, head="prototypes")
who.save({str(tmp_path / "a.glocal")!r})
again = Recognizer.load({str(tmp_path / "a.glocal")!r})
print([answer.nearest for answer in again.predict({str(taught / "one")!r})])
assert all(each.same for each in again.verify())
assert again.explain({str(taught / "one" / "000.png")!r}).width > 500
print(sorted(name for name in sys.modules if name.startswith("glocal.research")))
"""
    assert run(Path(sys.executable), code) == "['one', 'one', 'one', 'one']\n[]\n"


@pytest.mark.long
def test_a_plain_installation_is_enough(tmp_path: Path) -> None:
    """In an environment of its own, with the versions that everything was tested with."""
    python = tmp_path / "fresh" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "fresh")], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    got = subprocess.run([*install, "-c", str(ROOT / "constraints.txt"), str(ROOT)], capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"pip cannot install glocal: {got.stderr.strip()[-200:]}")
    walk(python, "from glocal.cli.main import main\nmain()", tmp_path)
    listed = json.loads(subprocess.run([str(python), "-m", "pip", "list", "--format=json"], capture_output=True).stdout)
    assert not {each["name"].lower() for each in listed} & {"torch", "onnx", "onnxscript"}
