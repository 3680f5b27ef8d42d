"""``glocal demo --photos``: what a recognizer would make of somebody's own photos, as one page."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from glocal import __version__
from glocal.common.files import write_text
from glocal.common.markup import Html
from glocal.common.page import Section, code, facts, page
from glocal.recognizer.diagnosis.check import Check, check
from glocal.recognizer.photos.sources import Source, labelled_sources
from glocal.recognizer.recognizer import Recognizer
from glocal.recognizer.support import UNKNOWN_NAME
from glocal.samples.recognizer_report import (
    answers,
    confusion,
    expectation,
    kept,
    left_out_confusion,
    mistakes,
    outcome,
    reasons,
)

EVERY = 3  # one photo of so many is kept out, to ask about it

Progress = Callable[[str, int, int | None], None]  # what, done, of how many


class PhotoReport(NamedTuple):
    report: Path
    recognizer: Recognizer  # of all photos
    outcome: Check | None  # of photos that were kept out; None where no class has enough


def report_photos(
    photos: Path, report: Path, *, model: Any, device: str = "auto", workers: int = 2, progress: Progress | None = None
) -> PhotoReport:
    """Numbers come from all photos, each judged by the others; answers from a second recognizer that lacks a third."""
    options: dict[str, Any] = {"model": model, "device": device, "workers": workers, "skip_bad": True}

    def reporting(stage: str) -> dict[str, Any]:
        return {} if progress is None else {"progress": lambda done, total: progress(stage, done, total)}

    whole = Recognizer.enroll(photos, **options, **reporting("look"))
    taught, asked = _divided(labelled_sources(photos).classes)
    checked: Check | None = None
    sections = _numbers(whole)
    if asked:
        recognizer = Recognizer.enroll(taught, **options, **reporting("teach"))
        checked = check(recognizer, asked, **reporting("ask"))
        sections += _asked(recognizer, checked, {each.name: each for some in asked.values() for each in some})
    else:
        sentence = f"To ask about photos that were not taught, give a class {EVERY}, or put others into unknown/."
        sections.append(Section("Answers", [sentence]))
    sections += _ending(photos, whole)
    lead = f"{len(whole.classes)} classes, {len(whole.contents.support.photos)} photos, {whole.contents.model.name}"
    write_text(report, page(f"What it makes of {photos.resolve().name}", sections, lead=lead))
    return PhotoReport(report, whole, checked)


def _divided(classes: dict[str, list[Source]]) -> tuple[dict[str, list[Source]], dict[str, list[Source]]]:
    """Every third photo of a class is asked about; so are all other things, which the second one is not told of."""
    taught, asked = {}, {}
    for name, some in classes.items():
        kept_out = some if name == UNKNOWN_NAME else some[EVERY - 1 :: EVERY]
        rest = [each for each in some if each not in kept_out]
        if rest:
            taught[name] = rest
        if kept_out:
            asked[name] = kept_out
    return taught, asked


def _numbers(whole: Recognizer) -> list[Section]:
    sentence = "Every photo was judged by the others, and every class once left out as if it were unknown."
    parts: list[str] = [sentence, expectation(whole)]
    table = left_out_confusion(whole)
    if table:
        parts += [Html("<h3>What became of each</h3>"), confusion(table, whole.classes)]
    remarks = [str(each) for each in whole.findings()] + list(whole.threshold.warnings)
    checked = [Section("What to expect", parts)]
    return [*checked, Section("Check-up", remarks)] if remarks else checked


def _asked(recognizer: Recognizer, checked: Check, sources: dict[str, Source]) -> list[Section]:
    sentence = f"A second recognizer was taught without one photo in {EVERY} of each class, and asked about these" + (
        " and about the photos in unknown/." if checked.caught.n else ". There is no folder unknown/ of other things."
    )
    sections = [
        Section("Promise and outcome", [sentence, outcome(recognizer, checked), kept(recognizer, checked)]),
        Section("Answers", ["The first of every class, none of them chosen.", answers(checked, sources)]),
    ]
    if checked.worst():
        sections.append(Section("The surest mistakes", [mistakes(checked, sources)]))
    return [*sections, Section("Why", reasons(recognizer, checked, sources))]


def _ending(photos: Path, whole: Recognizer) -> list[Section]:
    model, folder = whole.contents.model.name, shlex.quote(str(photos))
    commands = f"glocal enroll {folder} -o mine.glocal\nglocal predict mine.glocal PHOTOS...\nglocal serve mine.glocal"
    made = {"Model": model, "Photos": str(photos), "glocal": __version__, "Sent elsewhere": "nothing"}
    return [Section("How it was made", [facts(made)]), Section("Next", [code(commands)])]
