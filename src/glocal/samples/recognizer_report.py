"""A recognizer as parts of a page: what to expect of it, what it made of photos whose names are known, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from glocal.common.markup import Html, data_uri, text
from glocal.common.page import facts, figure, side_by_side
from glocal.recognizer.diagnosis.check import Check, Checked, row_in_words
from glocal.recognizer.photos.images import to_png
from glocal.recognizer.photos.sources import Source
from glocal.recognizer.recognizer import Recognizer
from glocal.recognizer.support import UNKNOWN_NAME

SHOWN = 20  # answers on the page
LARGEST = 192  # pixels; a card shows 96, so this is sharp on a double-density screen
SMALL = 64  # pictures below this are shown as crisp squares
WIDEST = 20  # classes of a confusion matrix; with more, mistakes are listed by name

Sources = Mapping[str, Source]  # by the path that an answer names


def expectation(recognizer: Recognizer) -> Html:
    """The outlook: its verdict and its numbers, from the taught photos alone."""
    verdict, *numbers = recognizer.outlook().lines()
    pairs = (line.partition(":") for line in numbers)
    shown = facts({name: _number(value.strip()) for name, _, value in pairs})
    return Html(f"<p><strong>{text(verdict[:1].upper() + verdict[1:])}.</strong></p>{shown}")


def outcome(recognizer: Recognizer, checked: Check) -> Html:
    """What was promised, and what came of it on pictures that were not taught."""
    threshold = recognizer.threshold
    promised = "nothing" if threshold.expected is None else f"at most {100 * threshold.target_rate:g} %"
    return facts(
        {
            "Promised: known, but “unknown”": promised,
            "Outcome: known, but “unknown”": _number(str(checked.false_unknown)),
            "Known, and named right": _number(str(checked.accuracy)),
            "Unknown, and caught": _number(str(checked.caught)),
        }
    )


def kept(recognizer: Recognizer, checked: Check) -> str:
    """The same in a sentence."""
    rate, threshold = checked.false_unknown, recognizer.threshold
    if threshold.interval is None or not rate.n:
        return "Nothing was promised, or there was no known picture to see whether it is kept."
    low, high = threshold.interval
    expected = f"The target rate is {100 * threshold.target_rate:g} % on average"
    asked = f"{rate.k} of {rate.n} known pictures were called unknown ({100 * rate.value:.1f} %)."
    if rate.interval[0] <= high:
        return f"{asked} {expected}, and {100 * low:.1f} to {100 * high:.1f} % was expected of this recognizer."
    return f"{asked} {expected}, and at most {100 * high:.1f} % was expected. Teach photos like those that are asked."


def confusion(table: Mapping[str, Mapping[str, int]], classes: Iterable[str]) -> Html:
    """Rows: what pictures show; columns: what they were called."""
    names = [*classes, UNKNOWN_NAME]
    rows = [name for name in names if name in table]
    if len(names) > WIDEST:
        lines = "".join(f"<li>{text(row_in_words(truth, table[truth]))}</li>" for truth in rows)
        return Html(f"<ul>{lines}</ul>")
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in names)
    body = "".join(
        f'<tr><th scope="row">{text(truth)}</th>'
        + "".join(f"<td>{_cell(table[truth].get(name, 0), name == truth)}</td>" for name in names)
        + "</tr>"
        for truth in rows
    )
    corner = '<th scope="col">shows \\ called</th>'
    return Html(
        '<div class="scroll" role="region" tabindex="0" aria-label="Confusion">'
        f"<table><thead><tr>{corner}{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def left_out_confusion(recognizer: Recognizer) -> dict[str, dict[str, int]]:
    """Every taught photo judged by the others: truth -> answer -> photos."""
    decision, names = recognizer.contents.decision, recognizer.classes
    checked: dict[str, dict[str, int]] = {}
    for each, score in zip(decision.left_out, decision.levelled(decision.left_out).tolist(), strict=True):
        sentence = UNKNOWN_NAME if score > decision.threshold.value else names[each.nearest]
        row = checked.setdefault(names[each.label], {})
        row[sentence] = row.get(sentence, 0) + 1
    return checked


def answers(checked: Check, sources: Sources) -> Html:
    """The first pictures of every name, none of them chosen, each with its answer and the reason."""
    truths = dict.fromkeys(each.folder for each in checked.pictures)
    each_of = max(1, SHOWN // max(1, len(truths)))
    shown = [some for truth in truths for some in [e for e in checked.pictures if e.folder == truth][:each_of]][:SHOWN]
    return _cards(shown, sources)


def mistakes(checked: Check, sources: Sources) -> Html:
    """The surest ones first."""
    return _cards(checked.worst(), sources)


def reasons(recognizer: Recognizer, checked: Check, sources: Sources) -> list[str]:
    """Up to three answers as pictures of what matched, a name, an unknown, the surest mistake; and how to read them."""
    wanted: list[Callable[[Checked], bool]] = [
        lambda each: each.right and each.truth != UNKNOWN_NAME,
        lambda each: each.right and each.truth == UNKNOWN_NAME,
    ]
    chosen = [next(filter(want, checked.pictures), None) for want in wanted] + checked.worst(1)
    parts = []
    for each in chosen:
        if each is not None:
            # In few colours: a third of the bytes, and no difference to the eye.
            drawn = to_png(recognizer.explain(sources[each.answer.path]).quantize(256), optimize=True)
            sentence = f"{_file(each)} shows {each.folder} and was called {each.answer.label}: {each.answer.reason}"
            parts.append(figure(drawn, alt=sentence))
    reading = "Patches that match the nearest class are joined by lines; pale ones match nothing."
    return [reading, side_by_side(*parts)]


def _cards(shown: Iterable[Checked], sources: Sources) -> Html:
    cards = "".join(_card(each, sources) for each in shown)
    return Html(f'<div class="gallery"><ul class="pictures wide">{cards}</ul></div>')


def _card(each: Checked, sources: Sources) -> str:
    answer = each.answer
    sign, word = ("✓", "right") if each.right else ("✗", "wrong")
    shows = f"{each.folder}{'' if each.truth == each.folder else ', not taught'}"
    return (
        f'<li class="query {word}">{picture_of(sources[answer.path].read(), _file(each))}'
        f'<p><span class="verdict">{sign} {word}</span></p>'
        f"<p>says <strong>{text(answer.label)}</strong>, {100 * answer.probability:.0f} %</p><p>is {text(shows)}</p>"
        f'<p class="small-print">{text(answer.reason)}</p></li>'
    )


def picture_of(picture: NDArray[np.uint8], alt: str) -> str:
    """uint8 (H, W, 3) -> an element with a PNG inside, no larger than a page needs; small ones as crisp squares."""
    image = Image.fromarray(np.ascontiguousarray(picture))
    image.thumbnail((LARGEST, LARGEST))
    small = ' class="small"' if max(picture.shape[:2]) < SMALL else ""
    return f'<img{small} src="{data_uri(to_png(image, optimize=True), "image/png")}" alt="{text(alt)}">'


def _file(each: Checked) -> str:
    return each.answer.path.replace("\\", "/").rsplit("/", 1)[-1]


def _cell(n: int, right: bool) -> str:
    if not n:
        return "·"
    return f"<strong>{n}</strong>" if right else str(n)


def _number(words: str) -> Html:
    """As in "93.3 % (14 of 15; ...)": the number, and in small what is in the brackets."""
    head, bracket, rest = words.partition(" (")
    return Html(text(head) + (f"<small>{text(rest.removesuffix(')'))}</small>" if bracket else ""))
