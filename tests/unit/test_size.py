"""Caps on the files and lines of each part: one is raised only in a commit that says what was deleted for it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CAPS = {  # folder -> files, lines
    "src/glocal/common": (10, 700),
    "src/glocal/recognizer": (36, 5_450),
    "src/glocal/bulk": (11, 1_400),
    "src/glocal/serve": (18, 2_900),
    "src/glocal/samples": (6, 500),
    "src/glocal/cli": (17, 2_450),
    "src/glocal/research/ops": (8, 550),
    "src/glocal/research/metrics": (5, 750),
    "src/glocal/research/methods": (21, 3_400),
    "src/glocal/research/data": (24, 3_700),
    "src/glocal/research/backbones": (8, 950),
    "src/glocal/research/engine": (18, 3_200),
    "src/glocal/research/report": (8, 1_200),
    "src/glocal/research/convert": (5, 600),
    "src/glocal/research/reproduce": (15, 2_050),
    "tests": (187, 23_920),
    "benchmarks": (15, 2_250),
    "tools": (10, 1_300),
}
HELPERS = 1_200  # lines of tests/*.py, which hold no tests


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
