"""The wheel, installed for real in a new environment outside the repository, does its work there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import distribution, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from glocal import __version__
from photos import write, write_classes

REPOSITORY = Path(__file__).parents[2]
MODEL = "embedded-protonet"
LARGEST = 30_000_000  # bytes of the wheel: a practitioner downloads it, most of it the graphs of the encoders
PATIENCE = 600  # seconds: a hanging installation must not hang the suite


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command, run without anything of this environment on its path."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GLOCAL"))}
    environment = inherited | {"PYTHONPATH": "", "GLOCAL_CACHE": str(cwd / "cache")}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(project: Path, out: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet")
    run(*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", out, project, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(REPOSITORY, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=["links", pytest.param("copies", marks=pytest.mark.long)])
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The folder of the commands of a new environment with the wheel and its research and demo extras.

    What they need, and no more, is installed by pip, which copies a gigabyte; or linked to from this environment.
    """
    home = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", home / "env", cwd=home)
    commands = home / "env" / "bin"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", commands / "python", "install")
    options = ["--no-deps"] if request.param == "links" else ["-c", str(REPOSITORY / "constraints.txt")]
    run(*pip, "--quiet", "--no-compile", *options, f"glocal[research,demo] @ {wheel.as_uri()}", cwd=home)
    if request.param == "links":
        (site,) = home.glob("env/lib/python*/site-packages")
        link_needed(wheel, site)
    return commands


def link_needed(wheel: Path, site: Path) -> None:
    """What the wheel says it needs with both extras, and what that needs, as links into this environment."""
    with zipfile.ZipFile(wheel) as archive:
        about = archive.read(f"glocal-{__version__}.dist-info/METADATA").decode()
    stated = re.findall(r"^Requires-Dist: (.+)$", about, re.MULTILINE)
    waiting, done = [(each, extra) for each in stated for extra in ("research", "demo")], {"glocal"}
    while waiting:
        text, extra = waiting.pop()
        needed = Requirement(text)
        if needed.marker is not None and not needed.marker.evaluate({"extra": extra}):
            continue
        for wanted in needed.extras or {""}:
            more = stated if needed.name == "glocal" else requires(needed.name) or []
            if (name := f"{needed.name}[{wanted}]") not in done:
                done.add(name)
                waiting += [(each, wanted) for each in more]
        if needed.name != "glocal":
            dist = distribution(needed.name)
            for top in {file.parts[0] for file in dist.files or ()} - {"..", "__pycache__"}:
                if not (site / top).exists():
                    (site / top).symlink_to(Path(str(dist.locate_file(top))))


def test_the_wheel_holds_the_data_of_the_package(wheel: Path) -> None:
    source = REPOSITORY / "src"
    assert wheel.stat().st_size <= LARGEST
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.getinfo(name).file_size for name in archive.namelist()}
    wanted = [
        source / "glocal" / "py.typed",
        source / "glocal" / "common" / "page.css",
        *source.glob("glocal/serve/page/*"),
        *source.glob("glocal/recognizer/graphs/*.onnx"),
        *source.glob("glocal/research/recipes/*.toml"),
        *source.glob("glocal/research/weights/**/*.safetensors"),
        *source.glob("glocal/research/data/class_lists/*.json"),
        source / "glocal" / "research" / "data" / "catalogue.toml",
    ]
    assert len([path for path in wanted if path.suffix == ".toml"]) > 0
    assert len([path for path in wanted if path.suffix == ".json"]) > 0
    for path in wanted:
        assert held.get(path.relative_to(source).as_posix()) == path.stat().st_size, path
    assert {name.partition("/")[0] for name in held} == {"glocal", f"glocal-{__version__}.dist-info"}
    assert not [name for name in held if "__pycache__" in name]


def test_the_research_heads_are_a_wheel_of_their_own(tmp_path: Path) -> None:
    """Data alone: no program but the line with its version."""
    source = REPOSITORY / "models" / "src"
    with zipfile.ZipFile(build(REPOSITORY / "models", tmp_path)) as archive:
        held = {name: archive.getinfo(name).file_size for name in archive.namelist()}
    for path in source.rglob("*.safetensors"):
        assert held[path.relative_to(source).as_posix()] == path.stat().st_size, path
        assert path.with_name("README.md").relative_to(source).as_posix() in held, "its card"
    assert [name for name in held if name.endswith(".py")] == ["glocal_models/__init__.py"]


def test_an_installed_wheel_needs_no_repository(installed: Path, tmp_path: Path) -> None:
    glocal = installed / "glocal"
    assert run(glocal, "--version", cwd=tmp_path) == f"glocal {__version__}\n"
    script = "import glocal; from importlib.metadata import version; print(glocal.__file__, version('torch'))"
    where, torch = run(installed / "python", "-c", script, cwd=tmp_path).split()
    assert (Path(where).is_relative_to(installed.parent), torch) == (True, version("torch"))
    listed = json.loads(run(glocal, "list", "--json", cwd=tmp_path))
    assert {"protonet", "gel"} <= set(listed["methods"])
    assert "embedded" in listed["datasets"]
    assert listed["recipes"]
    weights = REPOSITORY / "src" / "glocal" / "research" / "weights"
    shipped = [path.relative_to(weights).with_suffix("").as_posix() for path in weights.rglob("*.safetensors")]
    assert sorted(listed["models"]) == sorted(shipped)
    assert {MODEL, "photos-fast"} <= set(shipped)


def test_a_shipped_model_evaluates(installed: Path, tmp_path: Path) -> None:
    evaluate = ("evaluate", MODEL, "--dataset", "embedded", "--tasks", "20", "--query", "3", "--json")
    found = json.loads(run(installed / "glocal", *evaluate, cwd=tmp_path))
    assert found["tasks"] == 20
    assert found["skipped"] == []
    assert 0.3 < found["metrics"]["acc"]["mean"] <= 1, "clearly better than naming one of five at random"


def test_a_folder_of_photos_becomes_a_recognizer(installed: Path, tmp_path: Path) -> None:
    glocal, classes = installed / "glocal", ["zero", "one", "two"]
    photos, labelled = tmp_path / "photos", tmp_path / "labelled"
    write_classes(photos, classes, 0, 5)
    write_classes(labelled, classes, 10, 14)
    write(labelled / "unknown", "seven", 10, 14)
    enrolled = json.loads(run(glocal, "enroll", photos, "-o", "it.glocal", "--json", cwd=tmp_path))
    assert enrolled["model"] == "ridge on fast"
    assert "usable" in enrolled["outlook"]
    assert enrolled["classes"] == dict.fromkeys(sorted(classes), 5)
    answers = json.loads(run(glocal, "predict", "it.glocal", labelled / "zero", "--json", cwd=tmp_path))
    assert [set(answer["probabilities"]) for answer in answers] == [{*classes, "unknown"}] * 4
    checked = json.loads(run(glocal, "check", "it.glocal", labelled, "--json", cwd=tmp_path))
    assert (checked["pictures"], checked["caught"]["n"]) == (16, 4)
    assert checked["named_right"]["value"] > 0.6, "clearly better than naming one of three at random"
