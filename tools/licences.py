"""The licences of all pinned dependencies as a table, from what the installed packages say of themselves.

``python tools/licences.py docs/licences.md`` writes the page where all of them are installed; elsewhere it leaves the
page as it is, says which are not, and ends with 1.
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


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = sorted(
        (line.split("#")[0].strip().split("==") for line in lines if "==" in line), key=lambda pair: pair[0].lower()
    )
    return {name: version.partition("+")[0] for name, version in pairs}


def absent() -> list[str]:
    """Pinned, and not installed here in that version: nothing can be said of their licence."""
    return [name for name, version in pinned().items() if installed(name) != version]


def installed(name: str) -> str | None:
    try:
        return distribution(name).version.partition("+")[0]
    except PackageNotFoundError:
        return None


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
    for name, version in pinned().items():
        mark = "" if _plain(name) in needed else "x"
        lines.append(f"| {name} | {version} | {licence(distribution(name))} | {mark} |")
    return "\n".join(lines) + "\n"


def _plain(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement.strip())[0].lower().replace("_", "-").replace(".", "-")


def main(arguments: list[str]) -> int:
    if lacking := absent():
        print(
            f"{len(lacking)} of {len(pinned())} packages of constraints.txt are not installed here in the pinned "
            f"version: {', '.join(lacking)}; the page stays as it is, install them with pip install -r constraints.txt",
            file=sys.stderr,
        )
        return 1
    Path(arguments[0]).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
