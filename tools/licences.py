"""The licences of all pinned dependencies as a table, from what the installed packages say of themselves.

``python tools/licences.py docs/licences.md`` writes the page.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAD = """# Licences of the dependencies

Written by `python tools/licences.py docs/licences.md` from what the installed packages of `constraints.txt` say of
themselves. Only those without a mark are needed to run glocal or one of its extras; the others are for its development.
"""
DEVELOPMENT = ("dev", "docs", "all")  # extras that bring nothing of their own to those who use it


def pinned() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return sorted((line.split("==")[0].strip() for line in lines if "==" in line), key=str.lower)


def licence(found: Distribution) -> str:
    """The expression, else what the classifiers say, else the first line of the text."""
    about = found.metadata
    if about["License-Expression"]:
        return str(about["License-Expression"])
    named = [each.split(" :: ")[-1] for each in about.get_all("Classifier") or [] if each.startswith("License :: ")]
    named = [each for each in named if each != "OSI Approved"]
    said = (about["License"] or "UNKNOWN").splitlines()[0][:60]
    return ", ".join(named) or ("not stated by the package" if said == "UNKNOWN" else said)


def reached(names: list[str]) -> set[str]:
    """What they need, and what that needs."""
    seen: set[str] = set()
    waiting = [_plain(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        waiting += [_plain(each) for each in needs if "extra ==" not in each]
    return seen


def page() -> str:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [some for name, some in project["optional-dependencies"].items() if name not in DEVELOPMENT]
    asked = [*project["dependencies"], *(each for some in extras for each in some)]
    needed, lines = (
        reached(asked),
        [HEAD, "| package | version | licence | for development only |", "|---|---|---|---|"],
    )
    for name in pinned():
        try:
            found = distribution(name)
        except PackageNotFoundError:
            lines.append(f"| {name} | - | not installed here | |")
            continue
        mark = "" if _plain(name) in needed else "x"
        lines.append(f"| {name} | {found.version.partition('+')[0]} | {licence(found)} | {mark} |")
    return "\n".join(lines) + "\n"


def _plain(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement.strip())[0].lower().replace("_", "-").replace(".", "-")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
