"""What a run of the campaign counted, and the page that is made of it.

``python -m campaign.results FOLDER PAGE`` writes the page from the counts below the folder; nothing on it is typed.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from glocal.common.files import write_text

WHOLE = 300  # cases of a kind
FOLDER = Path(os.environ.get("GLOCAL_CAMPAIGN", "campaign-out"))
HEAD = """# The campaign: files and requests that mean harm

`make campaign` writes this page from its own counts. Each line was tried that often; "wrong" is a traceback, an answer
of 500 or more, more than 20 s of the processor or 2 GiB for a file, a payload that ran, a file outside of its folder,
a lost change, another result than that of an undisturbed run.
What it found before is kept as tests (see `tests/campaign`); what is promised is in [SECURITY](../../SECURITY.md).
"""


def keep(part: str, name: str, record: dict[str, Any]) -> None:
    """One line of the page, as a file of its own: a campaign may be run in parts."""
    safe = "".join(letter if letter.isalnum() else "-" for letter in name)
    write_text(FOLDER / part / f"{safe}.json", json.dumps({"name": name, **record}, indent=1))


SERVER = (
    "load", "slow clients, abrupt disconnects", "idle connections", "full disk", "read-only folder",
    "file replaced underneath", "SIGTERM with requests in flight", "SIGKILL in a save", "power cuts", "two editors",
)  # fmt: skip


JOBS = [
    f"{job}: {what}"
    for job in ("train", "bank", "prepare", "bulk")
    for what in ("killed", "two at once", "cache lost or damaged", "full disk")
]


def lacking(there: list[dict[str, Any]]) -> str:
    """What a whole campaign has and these counts have not, or not in full."""
    from campaign.kinds import KINDS
    from campaign.serving_kinds import SERVED

    names = {each["name"] for each in there}
    absent = [name for name in (*KINDS, *SERVED, *JOBS, *SERVER) if name not in names]
    short = [each["name"] for each in there if "outcomes" in each and each["tried"] < WHOLE]
    told = f"Not in these counts, and still to be run: {', '.join(absent)}. " if absent else ""
    return told + (f"Shorter than the {WHOLE} cases of a whole campaign: {', '.join(short)}." if short else "")


def page(folder: Path) -> str:
    files = [json.loads(path.read_text()) for path in sorted((folder / "files").glob("*.json"))]
    jobs = [json.loads(path.read_text()) for path in sorted((folder / "jobs").glob("*.json"))]
    server = [json.loads(path.read_text()) for path in sorted((folder / "server").glob("*.json"))]
    lines = [
        HEAD,
        f"Run on {platform.system()} {platform.machine()}, Python {platform.python_version()}.",
        lacking(files + jobs + server),
        "",
    ]
    if files:
        lines += [
            "## Files",
            "",
            'Mutated by a seeded generator and read by the command line in one process, or by the server ("served",',
            '"sent"). One line again: `python -m campaign.fuzz KIND CASES SEED FOLDER` with `tests` on the path.',
            "",
            "| kind | seed | tried | read, every number finite | refused | wrong | slowest | most memory |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for each in files:
            found = [f"{each['outcomes'].get(name, 0):,}" for name in ("read", "refused", "wrong")]
            limits = [f"{each['seconds']:.1f} s", f"{each['peak'] / 2**30:.2f} GiB"]
            lines.append(f"| {' | '.join([each['name'], str(each['seed']), str(each['tried']), *found, *limits])} |")
        total = sum(each["tried"] for each in files), sum(each["outcomes"].get("wrong", 0) for each in files)
        lines += [f"| **together** | | {total[0]:,} | | | **{total[1]}** | | |", ""]
    if jobs:
        about = "Training, feature banks, prepared data, answers of many photos; the result is an undisturbed run's."
        lines += ["## Long jobs", "", about, *_table("test_jobs.py", jobs)]
    if server:
        lines += ["## Server", "", *_table("test_server.py", server)]
    return "\n".join(lines)


def _table(file: str, counted: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"`python -m pytest -m campaign tests/campaign/{file} -k NAME` runs one line.",
        "",
        "| what | tried | went as it should | refused with a sentence | wrong | about |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for each in counted:
        counts = f"{each['tried']:,} | {each['good']:,} | {each.get('refused', 0):,} | {each['wrong']}"
        lines.append(f"| {each['name']} | {counts} | {each['about']} |")
    return [*lines, ""]


if __name__ == "__main__":
    write_text(sys.argv[2], page(Path(sys.argv[1])))
