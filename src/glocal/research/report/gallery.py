"""One task as pictures: what the model was shown, what it was asked, what it said.

Right and wrong differ by a sign, by words and by the line of the card, never by colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from glocal.common.markup import Html, data_uri, text
from glocal.common.words import counted
from glocal.recognizer.photos.images import encoded

LARGEST = 192  # pixels; a card shows 96, so this is sharp on a double-density screen and keeps the page small
SMALL = 64  # pictures below this are shown as crisp squares instead of a blur

Picture = NDArray[np.uint8]  # (H, W, 3)


@dataclass(frozen=True)
class Query:
    """A picture the model was asked about.  ``truth`` names it even when its class was not enrolled."""

    picture: Picture  # (H, W, 3)
    truth: str
    known: bool  # truth is among the enrolled classes
    answer: str | None  # the class the model named, None when it said "unknown"
    open_score: float  # larger = more unknown

    @property
    def right(self) -> bool:
        return self.answer == self.truth if self.known else self.answer is None

    @property
    def verdict(self) -> str:
        if self.right:
            return "right"
        if not self.known:
            return "missed"
        return "rejected" if self.answer is None else "mixed up"


def gallery(support: Mapping[str, Sequence[Picture]], queries: Sequence[Query], *, threshold: float) -> Html:
    """Support pictures by class, then the queries of known and of unknown classes, each with its answer.

    ``threshold`` is the open score above which the model says "unknown".
    """
    scores = [query.open_score for query in queries] + [threshold]
    classes = "".join(_class(name, pictures) for name, pictures in support.items())
    shown = sum(map(len, support.values()))
    parts = [
        '<div class="gallery">',
        f"<h3>What it was shown: {counted(shown, 'picture')} of {counted(len(support), 'class')}</h3>",
        f'<ul class="classes">{classes}</ul>',
    ]
    if queries:
        parts.append(
            f'<p class="reading">Bar: the open score of a query. Mark: the threshold, {threshold:.3g}; '
            "a score above it means “unknown”.</p>"
        )
    for title, known in (("Asked about these classes", True), ("Asked about classes it never saw", False)):
        asked = [query for query in queries if query.known == known]
        if asked:
            right = sum(query.right for query in asked)
            cards = "".join(_card(query, threshold=threshold, low=min(scores), high=max(scores)) for query in asked)
            parts += [f"<h3>{title}: {right} of {len(asked)} right</h3>", f'<ul class="pictures">{cards}</ul>']
    return Html("\n".join([*parts, "</div>"]))


def picture_uri(picture: Picture) -> str:
    """uint8 (H, W, 3) -> an embedded PNG, shrunk when it is larger than a page needs."""
    image = Image.fromarray(np.ascontiguousarray(picture))
    image.thumbnail((LARGEST, LARGEST))
    return data_uri(encoded(image, optimize=True), "image/png")


def _class(name: str, pictures: Sequence[Picture]) -> str:
    shots = "".join(picture_of(picture, f"support picture of {name}") for picture in pictures)
    return f'<li><div class="shots">{shots}</div><span class="name">{text(name)}</span></li>'


def _card(query: Query, *, threshold: float, low: float, high: float) -> str:
    said = "unknown" if query.answer is None else query.answer
    side = "known class" if query.known else "unknown class"
    sign = "✓" if query.right else "✗"
    beyond = "&gt;" if query.open_score > threshold else "≤"

    def place(score: float) -> str:
        return f"{100 * (score - low) / (high - low) if high > low else 50:.1f}%"

    return (
        f'<li class="query {"right" if query.right else "wrong"}">'
        f"{picture_of(query.picture, f'{query.truth}, {side}')}"
        f'<p><span class="verdict">{sign} {query.verdict}</span></p>'
        f"<p>says <strong>{text(said)}</strong></p>"
        f"<p>is {text(query.truth)}{'' if query.known else ', never shown'}</p>"
        f'<div class="gauge" aria-hidden="true"><span class="level" style="width:{place(query.open_score)}"></span>'
        f'<span class="mark" style="left:{place(threshold)}"></span></div>'
        f'<p class="small-print">score {query.open_score:.3g} {beyond} {threshold:.3g}</p>'
        "</li>"
    )


def picture_of(picture: Picture, alt: str) -> str:
    """An element with the picture inside; small ones as crisp squares."""
    small = ' class="small"' if max(picture.shape[:2]) < SMALL else ""
    return f'<img{small} src="{picture_uri(picture)}" alt="{text(alt)}">'
