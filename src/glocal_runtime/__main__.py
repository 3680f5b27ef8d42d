"""``python -m glocal_runtime``: ask, teach and check an export on a machine without PyTorch."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glocal_runtime.errors import GlocalError
from glocal_runtime.eye import Unreadable
from glocal_runtime.files import replacing
from glocal_runtime.folder import read_manifest
from glocal_runtime.prediction import Prediction
from glocal_runtime.recognizer import Recognizer
from glocal_runtime.walk import walk


def predict(asked: argparse.Namespace) -> int:
    """Name pictures, or call them unknown."""
    recognizer = Recognizer.load(asked.folder)
    failed = answered = 0
    for answer in recognizer.stream(walk(asked.images)):
        failed += isinstance(answer, Unreadable)
        answered += isinstance(answer, Prediction)
        if asked.json:
            _say(json.dumps(vars(answer) if isinstance(answer, Unreadable) else answer.to_json()))
        elif isinstance(answer, Unreadable):
            _say(f"{answer.path}: error: {answer.error}")
        else:
            _say(f"{answer.path}: {answer.label}\n    {answer.reason}")
            if answer.warning:
                _say(f"    {answer.warning}")
    return 0 if not failed else 1 if answered else 2


def add(asked: argparse.Namespace) -> int:
    """Add a class, or photos to a class that is there."""
    recognizer = Recognizer.load(asked.folder)
    grow = recognizer.add_photos if asked.name in recognizer.classes else recognizer.add_class
    return _changed(recognizer, asked, grow(asked.name, asked.photos))


def remove(asked: argparse.Namespace) -> int:
    """Remove a class."""
    recognizer = Recognizer.load(asked.folder)
    return _changed(recognizer, asked, recognizer.remove_class(asked.name))


def explain(asked: argparse.Namespace) -> int:
    """Draw what matched in which photo."""
    image = Recognizer.load(asked.folder).explain(asked.image)
    with replacing(asked.out) as partial, partial.open("wb") as file:
        image.save(file, "PNG")
    _say(str(asked.out))
    return 0


def verify(asked: argparse.Namespace) -> int:
    """Score the probe pictures again: the same answers on this machine?"""
    found = Recognizer.load(asked.folder).verify()
    worst, same = max((each.difference for each in found), default=0.0), all(each.same for each in found)
    verdict = "the same answers as where it was made" if same else "NOT the same answers"
    _say(f"{verdict}: {len(found)} probes, largest difference {worst:.1e}")
    return 0 if same else 1


def info(asked: argparse.Namespace) -> int:
    """Show what is in an export."""
    manifest = read_manifest(Path(asked.folder))
    model, threshold = manifest["model"], manifest["threshold"]
    if asked.json:
        _say(json.dumps({key: value for key, value in manifest.items() if key != "left_out"}, indent=1))
        return 0
    _say(f"written by glocal {manifest['version']}, schema {manifest['schema_version']}")
    _say(f"model {model['name']}: {model['method']}, open score {model['open_score']}, {model['precision']}")
    _say(f"threshold {threshold['value']} from {threshold['source']}")
    for each in manifest["classes"]:
        _say(f"class {each['name']}: {len(each['photos'])} photos")
    return 0


def main(words: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(words)
    try:
        return int(asked.run(asked))
    except GlocalError as error:
        _say(f"glocal_runtime: {error}", sys.stderr)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _say(f"glocal_runtime: {where}{error.strerror or error}", sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m glocal_runtime", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for run in (predict, add, remove, explain, verify, info):
        command = commands.add_parser(run.__name__, help=run.__doc__, description=run.__doc__)
        command.set_defaults(run=run)
        command.add_argument("folder", type=Path, metavar="DIR", help="a folder that `glocal export` wrote")
        if run is predict:
            command.add_argument("images", type=_existing, nargs="+", help="pictures, and folders of pictures")
        if run in (predict, info):
            command.add_argument("--json", action="store_true", help="print the result as JSON")
        if run in (add, remove):
            command.add_argument("name", metavar="CLASS")
        if run is add:
            command.add_argument("photos", type=_existing, nargs="+", help="photos, and folders of photos")
        if run is explain:
            command.add_argument("image", type=_existing, help="a picture")
            command.add_argument("-o", "--out", type=Path, default=Path("why.png"), help="the PNG to write (why.png)")
    return parser


def _existing(word: str) -> Path:
    if not Path(word).exists():
        raise argparse.ArgumentTypeError(f"{word}: there is no such file or folder; check the path")
    return Path(word)


def _changed(recognizer: Recognizer, asked: argparse.Namespace, findings: list[Any]) -> int:
    recognizer.save(asked.folder)
    for each in findings:
        _say(f"check-up: {each}", sys.stderr)
    n = len(recognizer.contents.support.photos)
    _say(f"{asked.folder}: {len(recognizer.classes)} classes, {n} photos, threshold {recognizer.threshold.value:.4g}")
    return 0


def _say(text: str, where: Any = None) -> None:
    """File names need not be Unicode, and may hold control characters that move a cursor."""
    clean = text.encode("utf-8", "replace").decode("utf-8")
    print("".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in clean), file=where)


if __name__ == "__main__":
    sys.exit(main())
