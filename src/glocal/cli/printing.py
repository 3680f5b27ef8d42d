"""How recognizers, their thresholds and their answers are printed, as text and tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from glocal.cli.console import screen
from glocal.common.words import counted, listed, printable

WIDEST = 20  # classes whose confusion matrix fits on a screen
# Of thresholds, in words.
SOURCES = {"one photo": "how the classes look to each other"}

if TYPE_CHECKING:
    from glocal.recognizer.decision import Threshold
    from glocal.recognizer.diagnosis.check import Check, Checked
    from glocal.recognizer.diagnosis.rate import Rate
    from glocal.recognizer.photos.boxes import Boxes, Regions
    from glocal.recognizer.recognizer import Recognizer


@contextmanager
def printing(as_json: bool, *, quiet: bool, lines: bool = False) -> Iterator[Callable[[Iterable[Any]], None]]:
    """A function that shows answers on the screen, as a line of JSON each, or in one list."""
    from json import dumps

    from glocal.bulk.results import plain
    from glocal.recognizer.photos.sources import Unreadable

    first = True

    def put(answers: Iterable[Any]) -> None:
        nonlocal first
        for answer in answers:
            if lines:
                typer.echo(dumps(plain(answer)))
            elif as_json:
                sys.stdout.write(("[\n" if first else ",\n") + dumps(plain(answer)))
            elif not quiet and isinstance(answer, Unreadable):
                typer.echo(printable(f"{answer.path}: error: {answer.error}"))
            elif not quiet:
                warning = [f"    {answer.warning}"] if answer.warning else []
                typer.echo(printable("\n".join([f"{answer.path}: {answer.label}", f"    {answer.reason}", *warning])))
            first = False

    yield put
    if as_json and not lines:
        sys.stdout.write("[]\n" if first else "\n]\n")


def check_report(checked: Check, recognizer: Recognizer) -> str:
    """Rates, confusion matrix, worst pictures."""
    from glocal.recognizer.diagnosis.check import row_in_words

    promised = "the threshold promises nothing"
    if recognizer.contents.decision.by_hand:
        promised = "threshold set by hand"
    elif recognizer.threshold.expected is not None:
        promised = f"target rate {100 * _allowed(recognizer.threshold):g} % on average"
    lines = [
        f"named right      {checked.accuracy} of {'pictures of ' if checked.accuracy.n else ''}enrolled classes",
        f"                 {checked.named_right} had none been called unknown",
        f"false unknown    {checked.false_unknown}; {promised}",
        f"unknowns caught  {checked.caught} of "
        + ("pictures of no enrolled class" if checked.caught.n else "other things; a folder unknown may hold some"),
        *([f"{checked.taught} of the pictures taught it: of these an answer proves little"] if checked.taught else []),
        *(["", *trade_off_lines(checked)] if checked.trade_off else []),
        "",
        *(_matrix(checked) if len(checked.classes) <= WIDEST else starmap(row_in_words, checked.confusion().items())),
    ]
    worst = [
        f"  {each.answer.path}: is {each.truth}, called {_sure(each)}; {each.answer.reason.partition('; ')[0]}"
        for each in checked.worst()
    ]
    return printable("\n".join(lines + (["", "worst pictures, the surest mistake first:", *worst] if worst else [])))


def _sure(mistake: Checked) -> str:
    """What it was called, with the number that mistakes are sorted by; of a class the reason begins with it."""
    number = f" ({100 * mistake.sureness:.0f} %)" if mistake.answer.is_unknown else ""
    return f"{mistake.answer.label}{number}"


def trade_off_lines(checked: Check) -> list[str]:
    """A line for each target rate: what the labelled pictures show at it, with 95 % intervals."""
    lines = ["target rate   false unknown            unknowns caught"]
    for each in checked.trade_off:
        cells = [_short(rate) for rate in (each.false_unknown, each.caught)]
        lines.append(f"{100 * each.target:>9g} %   {cells[0]:<22}   {cells[1]}")
    return lines


def _short(rate: Rate) -> str:
    if not rate.n:
        return "no pictures"
    low, high = rate.interval
    return f"{100 * rate.value:.0f} % ({100 * low:.0f} to {100 * high:.0f} %)"


def _matrix(checked: Check) -> list[str]:
    """A row for what the pictures show, a column for what they were called; ? is unknown."""
    names = (*checked.classes, "unknown")
    marks = [*(str(i + 1) for i in range(len(checked.classes))), "?"]
    table = checked.confusion()
    lines = ["".join(f"{mark:>5}" for mark in marks) + "   called this; shows this:"]
    for mark, truth in zip(marks, names, strict=True):
        if truth in table:
            cells = "".join(f"{table[truth].get(name, '·'):>5}" for name in names)
            lines.append(f"{cells}   {mark} {truth}")
    return lines


def tell(line: str) -> None:
    """For the person, beside the result; wrapped lines and markup would spoil paths."""
    screen().print(printable(line), markup=False, highlight=False, soft_wrap=True)


def tell_apart(boxes: Boxes, regions: Regions) -> None:
    """Pictures without an entry in a file of boxes, and entries without a picture."""
    if regions.absent:
        tell(
            f"{boxes.path} does not name {counted(len(regions.absent), 'picture')}, left out: {listed(regions.absent)}"
        )
    if regions.elsewhere:
        tell(f"{boxes.path} names {counted(len(regions.elsewhere), 'other picture')}: {listed(regions.elsewhere)}")


def summary(recognizer: Recognizer, file: Path) -> dict[str, Any]:
    contents = recognizer.contents
    return {
        "file": str(file),
        "identity": contents.identity,
        "model": contents.model.name,
        "classes": dict(zip(contents.support.names, contents.support.shots, strict=True)),
        "outlook": recognizer.outlook().to_json(),
        "threshold": recognizer.threshold.to_json(),
    }


def describe(recognizer: Recognizer) -> str:
    """The classes in a line, the threshold and what it promises in the next ones."""
    contents = recognizer.contents
    n_class, n_photo = len(contents.support.names), len(contents.support.photos)
    head = f"{counted(n_class, 'class')}, {counted(n_photo, 'photo')}, {contents.model.name}"
    return "\n".join([head, *recognizer.outlook().lines(), *threshold_lines(recognizer)])


def threshold_lines(recognizer: Recognizer) -> list[str]:
    threshold = recognizer.threshold
    if recognizer.contents.decision.by_hand:
        return [f"threshold {threshold.value:.4g}, set by hand: it promises nothing"]
    if threshold.source == "none":
        return ["no threshold: nothing is called unknown", *(f"note: {warning}" for warning in threshold.warnings)]
    source = SOURCES.get(threshold.source, threshold.source)
    lines = [f"threshold {threshold.value:.4g} from {source}"]
    if threshold.expected is not None:
        lines[0] += f", for {100 * threshold.target_rate:g} % false unknowns on average"
        if _allowed(threshold) > threshold.target_rate:
            lines[0] += ", and more to catch the known unknowns"
        inside = ""
        if threshold.interval is not None:
            inside = (
                f" (95 % prediction interval {100 * threshold.interval[0]:.1f} to {100 * threshold.interval[1]:.1f} %)"
            )
        lines[0] += f"; expected {100 * threshold.expected:.1f} %{inside}"
    return lines + [f"note: {warning}" for warning in threshold.warnings]


def _allowed(threshold: Threshold) -> float:
    """The share of known photos that may be called unknown: as asked for, or raised for the known unknowns."""
    return max(threshold.target_rate, round(threshold.expected or 0, 3))
