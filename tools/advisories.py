"""Known security advisories of the pinned dependencies, as the package index tells them.

Ends with 1 when there is one, and with 2 when the index told nothing of any version, as without a network.

``python tools/advisories.py`` asks for each line of ``constraints.txt`` by its version, and where the index does not
answer that, by its newest version: a pinned one that is older stays unknown, and is named.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from pip._internal.models.index import PyPI

ROOT = Path(__file__).parents[1]
INDEX = PyPI.pypi_url  # the one that pip asks unless it is told otherwise


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = (line.split("#")[0].strip().split("==") for line in lines if "==" in line)
    return {name: version.split("+")[0] for name, version in pairs}


def advisories(name: str, version: str) -> list[str] | None:
    """Their ids; None where there is no telling."""
    for path in (f"{name}/{version}", name):
        try:
            with urllib.request.urlopen(f"{INDEX}/{path}/json", timeout=30) as answer:
                told: dict[str, Any] = json.load(answer)
        except (urllib.error.URLError, TimeoutError, ValueError):
            continue
        if told["info"]["version"] == version:
            return [each["id"] for each in told["vulnerabilities"] if not each.get("withdrawn")]
    return None


def main() -> int:
    found = {f"{name} {version}": advisories(name, version) for name, version in pinned().items()}
    known = {each: ids for each, ids in found.items() if ids is not None}
    wrong = {each: ids for each, ids in known.items() if ids}
    for each, ids in wrong.items():
        print(f"{each}: {', '.join(ids)}")
    print(f"{len(known)} of {len(found)} pinned versions looked up, {len(wrong)} with an advisory")
    if unknown := [each for each in found if each not in known]:
        print(f"not to be had: {', '.join(unknown)}")
    return 1 if wrong else 0 if known else 2


if __name__ == "__main__":
    sys.exit(main())
