"""What the shipped models answer, as a file, and whether two such files say the same.

    PYTHONPATH=OLD/src python tools/record_answers.py record before.json --data DIR [--sections embedded evaluate]
    PYTHONPATH=NEW/src python tools/record_answers.py record after.json --data DIR
    python tools/record_answers.py compare before.json after.json [--tolerance 1e-6]

DIR holds caltech-photos, cifar-fs and tiered-64 as folders of pictures.  Only the command line is used, in processes of
their own: PYTHONPATH says which code.  Pictures are chosen by sorted names, and every record starts with an empty cache
of features.  A command that fails is recorded as its error.  With --sections, other sections of the file are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

SECTIONS = ("photos", "embedded", "export", "evaluate", "heads")
KNOWN, SHOTS, ASKED = 20, 5, 10  # known classes of photos; photos of each to learn and to ask
OTHERS, ASKED_OF_OTHERS = 50, 2  # other classes of photos; photos of each to ask
PHOTOS, EMBEDDED = ("photos-fast", "photos-gel", "photos-protonet"), ("embedded-gel", "embedded-protonet")
HEADS = {"cifar-fs-cpu": "cifar-fs", "tiered-64-cpu": "tiered-64"}  # what names of heads start with: their data
ANSWER = ("label", "is_unknown", "open_score", "threshold", "probabilities", "nearest")
RESULT = ("method", "open_score", "manifest", "spec", "tasks", "seed", "tasks_fingerprint", "metrics")
TABLE = ("spec", "unknown_share", "tasks", "seed", "tasks_fingerprint", "reference", "rows")
ROW = ("name", "open_score", "values", "difference", "rank")
ABSENT, NUMBERS = "(absent)", (int, float)  # bool is no number


def pick(found: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """These keys only: wording and the identities of files may change."""
    return {key: found.get(key, ABSENT) for key in keys}


class Recorder:
    """Runs commands; all their files are in one temporary folder."""

    def __init__(self, data: Path, temporary: Path) -> None:
        self.data, self.temporary = data, temporary
        self.environment = {**os.environ, "GLOCAL_CACHE": str(temporary / "cache")}

    def run(self, *arguments: str | Path, module: str = "glocal") -> Any:
        """The JSON that a command prints: one value, or one in each line."""
        command = [sys.executable, "-m", module, *map(str, arguments), "--json"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.replace(str(self.temporary), "").strip()[-500:])
        try:
            return json.loads(done.stdout)
        except ValueError:
            return [json.loads(line) for line in done.stdout.splitlines()]

    def copy_photos(self, pictures: Path) -> None:
        """Below learn/<class> and ask/<class>."""
        classes = sorted(path for path in (self.data / "caltech-photos").iterdir() if path.is_dir())
        for number, folder in enumerate(classes[: KNOWN + OTHERS]):
            learned, asked = (SHOTS, ASKED) if number < KNOWN else (0, ASKED_OF_OTHERS)
            for place, path in enumerate(sorted(folder.iterdir())[: learned + asked]):
                target = pictures / ("learn" if place < learned else "ask") / folder.name
                target.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target / path.name)

    def draw_digits(self, pictures: Path) -> None:
        """The handwriting inside scikit-learn, likewise, as PNG files."""
        from PIL import Image
        from sklearn.datasets import load_digits

        digits = load_digits()
        for digit in range(10):
            for number, pixels in enumerate(digits.images[digits.target == digit][: SHOTS + ASKED]):
                part = "ask" if number >= SHOTS else "learn" if digit < 6 else "left out"
                target = pictures / part / f"digit {digit}"
                target.mkdir(parents=True, exist_ok=True)
                grey = Image.fromarray((pixels * (255 / 16)).astype("uint8")).resize((32, 32), Image.Resampling.BICUBIC)
                grey.convert("RGB").save(target / f"{number:02}.png")

    def answers(self, model: str, *, export: bool = False) -> Any:
        """Of a new recognizer, or of its export: a .glocal file, formerly a folder with its own command line."""
        pictures, file = self.temporary / model.split("-")[0], self.temporary / f"{model}-{export}.glocal"
        if not pictures.exists():
            (self.copy_photos if pictures.name == "photos" else self.draw_digits)(pictures)
        enrolled = self.run("enroll", pictures / "learn", "-o", file, "--model", model)
        enrolled["threshold"].pop("warnings", None)
        if export:
            source, file = file, file.with_stem(f"{model}-onnx")
            self.run("export", source, "-o", file)
        found = self.run("predict", file, pictures / "ask", module="glocal.recognizer" if file.is_dir() else "glocal")
        answers = {str(Path(one["path"]).relative_to(pictures)): pick(one, ANSWER) for one in found}
        return {"enrolled": pick(enrolled, ("model", "method", "classes", "threshold")), "answers": answers}

    def evaluate(self, model: str, dataset: str | Path, shot: int, tasks: int) -> Any:
        found = self.run("evaluate", model, "--dataset", dataset, "--split=test", f"--shot={shot}", f"--tasks={tasks}")
        return pick(found, RESULT)

    def compare(self) -> Any:
        out = self.temporary / "compare"
        found = self.run("compare", *EMBEDDED, "--dataset=embedded", "--shots=1,5", "--tasks=100", "--out", out)
        for table in found["tables"]:
            table["rows"] = [pick(row, ROW) for row in table["rows"]]
        found["tables"] = [pick(table, TABLE) for table in found["tables"]]
        return pick(found, ("dataset", "split", "manifest", "reference", "tables"))

    def section(self, name: str) -> dict[str, Callable[[], Any]]:
        """What to ask for, by name."""
        if name == "heads":
            models = [model for model in self.run("list")["models"] if model.split("/")[0] in HEADS]
            cases = [(model, HEADS[model.split("/")[0]], 5 if model.endswith("-5shot") else 1) for model in models]
            return {model: partial(self.evaluate, model, self.data / data, shot, 20) for model, data, shot in cases}
        if name == "evaluate":
            pairs = [(model, shot) for model in EMBEDDED for shot in (1, 5)]
            means = {f"{model} {n}-shot": partial(self.evaluate, model, "embedded", n, 100) for model, n in pairs}
            return {**means, "compare": self.compare}
        models = {"photos": PHOTOS, "embedded": EMBEDDED, "export": (*EMBEDDED, "photos-protonet")}[name]
        return {model: partial(self.answers, model, export=name == "export") for model in models}


def record(out: Path, data: Path, sections: list[str]) -> None:
    kept = json.loads(out.read_text()) if out.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        recorder = Recorder(data.resolve(), Path(temporary).resolve())
        for section in sections:
            started = time.monotonic()
            kept[section] = attempt(lambda name=section: {k: attempt(ask) for k, ask in recorder.section(name).items()})
            partly = out.with_name(out.name + ".partial")
            partly.write_text(json.dumps(kept, indent=1))
            partly.replace(out)
            print(f"{time.monotonic() - started:.0f} s for ", end="")
            compare({section: kept[section]}, {section: kept[section]}, 0.0)  # says how many numbers and errors


def attempt(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def leaves(before: Any, after: Any, where: str) -> Iterator[tuple[str, Any, Any, float]]:
    """Pairs of single values with their place and difference; what one side lacks is ABSENT there."""
    if isinstance(before, list) and isinstance(after, list):
        before, after = dict(enumerate(before)), dict(enumerate(after))
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            yield from leaves(before.get(key, ABSENT), after.get(key, ABSENT), f"{where}/{key}")
    else:
        yield where, before, after, difference(before, after)


def difference(before: Any, after: Any) -> float:
    """Of two numbers relative to max(1, |before|); of anything else 0 or infinite."""
    if type(before) in NUMBERS and type(after) in NUMBERS and math.isfinite(before) and math.isfinite(after):
        return abs(before - after) / max(1.0, abs(before))
    same = type(before) is type(after) and (before == after or (before != before and after != after))  # NaN is NaN
    return 0.0 if same else math.inf


def compare(before: dict[str, Any], after: dict[str, Any], tolerance: float) -> list[str]:
    """Print a line for each section; return every mismatch as a line.  The same error on both sides is none."""
    mismatches = []
    for section in {**before, **after}:
        pairs = list(leaves(before.get(section, ABSENT), after.get(section, ABSENT), section))
        gaps = [gap for _, old, new, gap in pairs if type(old) in NUMBERS and type(new) in NUMBERS]
        wrong = [f"{where}: {str(old)[:200]} -> {str(new)[:200]}" for where, old, new, gap in pairs if gap > tolerance]
        counts = f"{len(gaps)} numbers, {sum(where.endswith('/error') for where, *_ in pairs)} errors"
        print(f"{section}: {counts}, {len(wrong)} mismatches, largest difference {max(gaps, default=0):.3g}")
        mismatches += wrong
    return mismatches


def main() -> int | None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("record", help="write what the models answer")
    writing.add_argument("out", type=Path)
    writing.add_argument("--data", type=Path, required=True)
    writing.add_argument("--sections", nargs="+", choices=SECTIONS, default=SECTIONS)
    reading = commands.add_parser("compare", help="exit code 1 when two records differ")
    reading.add_argument("records", type=Path, nargs=2)
    reading.add_argument("--tolerance", type=float, default=1e-6)
    given = parser.parse_args()
    if given.command == "record":
        return record(given.out, given.data, given.sections)
    mismatches = compare(*(json.loads(path.read_text()) for path in given.records), given.tolerance)
    print(*mismatches, f"{len(mismatches)} mismatches", sep="\n")
    return 1 if mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
