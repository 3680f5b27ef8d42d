"""Caps on the files and lines of each part: one is raised only in a commit that says what was deleted for it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CAPS = {  # folder -> files, lines
    "src/glocal/common": (12, 840),
    "src/glocal/recognizer": (44, 6_550),
    "src/glocal/hub": (9, 830),
    "src/glocal/bulk": (15, 1_830),
    "src/glocal/web": (2, 160),
    "src/glocal/serve": (18, 2_900),
    "src/glocal/samples": (6, 460),
    "src/glocal/cli": (20, 2_900),
    "src/glocal/research/ops": (5, 340),
    "src/glocal/research/metrics": (4, 580),
    "src/glocal/research/methods": (20, 3_210),
    "src/glocal/research/data": (12, 3_050),
    "src/glocal/research/backbones": (7, 790),
    "src/glocal/research/engine": (15, 3_200),
    "src/glocal/research/report": (6, 970),
    "src/glocal/research/convert": (4, 500),
    "src/glocal/research/reproduce": (10, 1_790),
    "tests": (201, 24_280),
    "benchmarks": (18, 2_550),
    "tools": (11, 1_380),
}
HELPERS = 1_390  # lines of tests/*.py, which hold no tests


def size(files: list[Path]) -> int:
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


@pytest.mark.parametrize("folder", CAPS)
def test_a_part_stays_within_its_cap(folder: str) -> None:
    files, (most_files, most_lines) = sorted((ROOT / folder).rglob("*.py")), CAPS[folder]
    assert files, f"{folder} has gone, take its line out"
    assert len(files) <= most_files
    assert size(files) <= most_lines


def test_helpers_of_tests_stay_few() -> None:
    assert size(sorted((ROOT / "tests").glob("*.py"))) <= HELPERS


def test_every_package_has_a_cap() -> None:
    packages = {file.parent.relative_to(ROOT).as_posix() for file in (ROOT / "src/glocal").rglob("*.py")}
    inside = {name for name in packages if any(f"{name}/".startswith(f"{folder}/") for folder in CAPS)}
    assert packages - inside == {"src/glocal", "src/glocal/research"}
