"""The demo: teach five handwritten digits, ask about all ten, and show answers and reasons on one page."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from glocal import __version__
from glocal.common.errors import GlocalError
from glocal.common.files import write_text
from glocal.common.markup import Html
from glocal.common.page import Section, code, facts, page
from glocal.recognizer.diagnosis.check import Check, check
from glocal.recognizer.photos.sources import Source
from glocal.recognizer.recognizer import Recognizer
from glocal.samples.digits import NAMES, digits
from glocal.samples.recognizer_report import answers, confusion, expectation, kept, outcome, reasons

TAUGHT, ASKED = 8, 60  # pictures of a digit that the recognizer is taught, and that it is asked about
KNOWN = NAMES[:5]
OTHER_HEAD = "gel"  # the paper's own, beside the default
COMMANDS = """\
glocal enroll photos -o mine.glocal       # photos/<class>/*.jpg; other things in photos/unknown/
glocal predict mine.glocal new.jpg        # a name, or "unknown", and why
glocal check mine.glocal labelled         # before you trust it: photos whose names you know
glocal serve mine.glocal                  # the same in a browser"""

Progress = Callable[[str, int, int | None], None]  # what, done, of how many


class Demo(NamedTuple):
    report: Path
    recognizer: Path
    expected: list[str]  # of the recognizer, in words
    outcome: Check
    kept: str  # whether the target rate was met, in words


def run_demo(out: Path, *, device: str = "auto", progress: Progress | None = None) -> Demo:
    """Write the recognizer and the page below ``out``."""
    # The pictures stand in the order of their writers. Both parts run over all of it, so that neither is of a few.
    pictures = {name: _evenly(some, TAUGHT + ASKED) for name, some in digits().items()}
    place = _evenly(range(TAUGHT + ASKED), TAUGHT)
    taught = {name: [pictures[name][i] for i in place] for name in KNOWN}
    asked = {name: [each for i, each in enumerate(some) if i not in place] for name, some in pictures.items()}
    ask = None if progress is None else partial(progress, "ask")
    recognizer = Recognizer.enroll(taught, device=device)
    checked = check(recognizer, asked, progress=ask)
    other = Recognizer.enroll(taught, head=OTHER_HEAD, device=device)
    beside = [Html(f"<h3>{OTHER_HEAD}</h3>"), outcome(other, check(other, asked, progress=ask))]
    file, report = _free_place(out, recognizer), out / "demo-report.html"
    recognizer.save(file)
    sources = {each.name: each for some in asked.values() for each in some}
    write_text(report, _page(recognizer, checked, sources, beside))
    return Demo(report, file, recognizer.outlook().lines(), checked, kept(recognizer, checked))


def _evenly(some: Sequence[Any], n: int) -> list[Any]:
    return [some[(2 * i + 1) * len(some) // (2 * n)] for i in range(n)]


def _free_place(out: Path, recognizer: Recognizer) -> Path:
    """digits.glocal, or a name beside it: the user may have taught that file more since."""
    place, n = out / "digits.glocal", 1
    while os.path.lexists(place) and not _holds(place, recognizer):
        n += 1
        place = out / f"digits-{n}.glocal"
    return place


def _holds(file: Path, recognizer: Recognizer) -> bool:
    try:
        return Recognizer.load(file, device="cpu").contents.identity == recognizer.contents.identity
    except GlocalError:
        return False


def _page(recognizer: Recognizer, checked: Check, sources: dict[str, Source], beside: list[Html]) -> str:
    yours = (
        "Put your photos into one folder per class, photos/<class>/*.jpg; five of each are a good start. Nothing is "
        "trained, and nothing leaves your machine. A report like this one of them: glocal demo --photos photos. A "
        "recognizer:"
    )
    research = (
        "pip install 'glocal[research]' adds methods, training and comparisons on few-shot tasks: glocal compare "
        "embedded-protonet embedded-gel --dataset embedded"
    )
    sections = [
        Section("What to expect", [expectation(recognizer)]),
        Section(
            "What came of it",
            [
                outcome(recognizer, checked),
                kept(recognizer, checked),
                confusion(checked.confusion(), recognizer.classes),
                "The same pictures with another head:",
                *beside,
            ],
        ),
        Section(
            "Answers and reasons",
            [
                "The first pictures of every digit, none of them chosen, with the answer and its reason.",
                answers(checked, sources),
                *reasons(recognizer, checked, sources),
            ],
        ),
        Section("How it was made", [facts({"Pictures": "handwritten digits", "glocal": __version__})]),
        Section("Next: your own photos", [yours, code(COMMANDS), Html("<h3>For research</h3>"), research]),
    ]
    lead = (
        f"{len(KNOWN)} digits were taught with {TAUGHT} pictures each. Then the recognizer was asked about pictures "
        "that it had not seen, of these digits and of the five others."
    )
    return page("Handwritten digits from a handful of pictures", sections, lead=lead)
