"""The walk of docs/tutorial-practice.md with real photos: every command and what it answers.

    python benchmarks/walk_practice.py [--data DIR] [--out DIR] [--model photos-fast]

DIR holds one folder of photos per class, at least thirteen, such as ``caltech-photos`` below GLOCAL_DATA.  Ten classes
(by the SHA-256 of their names, from the end: those that training never sees) are enrolled with five photos each, three
more play the unknowns.  Photos are linked, not copied; pictures and files stay in --out for a look.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

SHOTS, ASKED, HELD = 5, 5, 10
WALK = """
enroll photos -o things.glocal{model}
predict things.glocal new --csv answers.csv
predict things.glocal {known} {unknown} --explain why
add things.glocal {extra} more/{extra}
classes things.glocal
threshold things.glocal --max-false-unknown 0.1
threshold things.glocal --max-false-unknown 0.05
remove things.glocal {extra}
check things.glocal labelled
inspect things.glocal --verify
"""


def link(photos: list[Path], folder: Path, prefix: str = "") -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    places = [folder / f"{prefix}{photo.name}" for photo in photos]
    for photo, place in zip(photos, places, strict=True):
        place.symlink_to(photo.resolve())
    return places


def lay_out(data: Path, out: Path) -> dict[str, str]:
    """photos/, new/, labelled/ and more/; what the commands name."""
    classes = sorted((path for path in data.iterdir() if path.is_dir()), key=_hash)[-13:]
    if len(classes) < 13:
        raise SystemExit(f"{data} must hold at least 13 class folders, got {len(classes)}")
    named = {}
    for i, folder in enumerate(classes):
        found = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
        name, asked, held = folder.name, found[SHOTS : SHOTS + ASKED], found[SHOTS + ASKED :][:HELD]
        new = link(asked, out / "new", f"{name}-")
        named["known" if i < 10 else "unknown"] = shlex.quote(str(new[0].relative_to(out)))
        if i < 10:
            link(found[:SHOTS], out / "photos" / name)
        link(held, out / "labelled" / (name if i < 10 else "unknown"), f"{name}-")
        if i == 10:
            named["extra"] = name
            link(found[:SHOTS], out / "more" / name)
    return named


def _hash(path: Path) -> bytes:
    return hashlib.sha256(path.name.encode()).digest()


def main() -> None:
    home = os.environ.get("GLOCAL_DATA")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(home or ".") / "caltech-photos")
    parser.add_argument("--out", type=Path, default=Path("walk"))
    parser.add_argument("--model", default=None)
    asked = parser.parse_args()
    if asked.out.exists():
        shutil.rmtree(asked.out)
    named = lay_out(asked.data, asked.out)
    model = f" --model {asked.model}" if asked.model else ""
    for line in WALK.format(model=model, **named).strip().splitlines():
        print(f"$ glocal {line}", flush=True)
        command = [sys.executable, "-m", "glocal", *shlex.split(line)]
        subprocess.run(command, cwd=asked.out, check=True, stderr=subprocess.STDOUT)
        print(flush=True)


if __name__ == "__main__":
    main()
