"""The page of licences names each pinned version."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_licences_has_the_pinned_names_and_versions() -> None:
    rows = re.findall(
        r"^\| (\S+) \| (\S+) \| ([^|]+) \|", (ROOT / "docs/reference/licences.md").read_text("utf-8"), re.MULTILINE
    )
    lines = (line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines())
    pinned = dict(line.split("+")[0].split("==") for line in lines if "==" in line)
    assert {name: version for name, version, _ in rows if name != "package"} == pinned
