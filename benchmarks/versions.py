"""What enroll and predict cost in two versions of glocal: the same photos and commands, in turn, in one run.

    GLOCAL_DATA=DIR python benchmarks/versions.py [--before COMMIT] [--turns 5] [--out docs/results]

Whole commands with their start, on the first photos of five classes of ``caltech-photos``, with the default model of
each version: the commit (the last one before the decision was made anew, if none is named) and the files as they lie
here.  Counted is processor time, which other work on the machine hardly moves; of all turns the least.  Writes
versions.json, which promise_page.py shows.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from glocal.common.files import write_text

HERE = Path(__file__).parents[1]
CLASSES, QUERIES = 5, 18
SHOTS = (1, 5, 10)


def seconds(tree: Path, *words: object) -> float:
    """Of the processor, for one command of the version in this folder."""
    paths = os.pathsep.join(str(tree / each) for each in ("src", "models/src"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "glocal", *map(str, words)]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def unpacked(commit: str, folder: Path) -> Path:
    """The files of a commit."""
    packed = subprocess.run(["git", "-C", HERE, "archive", commit], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", default="e0b516e")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    given = parser.parse_args()
    data = Path(os.environ["GLOCAL_DATA"]) / "caltech-photos"
    classes = [sorted(each.iterdir()) for each in sorted(data.iterdir())[:CLASSES]]
    found: dict[str, list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        home, asked = Path(scratch), Path(scratch) / "asked"
        trees = (unpacked(given.before, home / "before"), HERE)
        asked.mkdir()
        for photo in (photo for each in classes for photo in each[-QUERIES:]):
            shutil.copy(photo, asked / f"{photo.parent.name}-{photo.name}")
        one = next(asked.iterdir())
        for shots in SHOTS:
            for each in classes:
                folder = home / str(shots) / each[0].parent.name
                folder.mkdir(parents=True)
                for photo in each[:shots]:
                    shutil.copy(photo, folder)
        for turn in range(given.turns):
            for number, tree in enumerate(trees):
                file = home / f"{turn}-{number}.glocal"
                took = {}
                for shots in SHOTS:
                    file.unlink(missing_ok=True)
                    took[f"enroll, {CLASSES} classes of {shots}"] = seconds(
                        tree, "enroll", home / str(shots), "--out", file
                    )
                took[f"predict, {len(classes) * QUERIES} photos"] = seconds(tree, "predict", file, asked)
                took["predict, 1 photo"] = seconds(tree, "predict", file, one)
                for what, value in took.items():
                    found.setdefault(what, [[], []])[number].append(value)
    least = {what: [round(min(each), 2) for each in pair] for what, pair in found.items()}
    record = {"before": given.before, "turns": given.turns, "seconds": least}
    write_text(given.out / "versions.json", json.dumps(record, indent=1) + "\n")
    print(*(f"{what}: {old} -> {new} s" for what, (old, new) in least.items()), sep="\n")


if __name__ == "__main__":
    main()
