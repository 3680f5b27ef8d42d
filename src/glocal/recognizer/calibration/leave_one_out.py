"""What the support says about itself: photos scored without themselves, and classes without photos or altogether.

Known unknowns (``aside``) are part of every support that is tried here, when the head uses them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glocal.recognizer.features import UNKNOWN, Features, Labels, class_likeness, join, spread
from glocal.recognizer.heads.head import Head, Scores

ROUNDS = 32  # at most this many photos of a class are left out in turn: more hardly change a threshold
CLASSES = 12  # classes that are scored as strangers to the rest
FOLDS = 5  # parts of the known unknowns that are left out in turn
FEW_PAIRS = 20_000  # photos x classes up to which leaving every photo out takes a moment
AT_ONCE = 1024  # photos asked about together: all of 10,000 classes against all classes would be gigabytes


class LeftOut(NamedTuple):
    """What a photo scores when its class is enrolled without it."""

    label: int
    shots: int  # photos that were left of the class
    score: float  # open score
    photo: int = 0  # its row in the support
    nearest: int = 0  # the class it would have been given
    parts: Mapping[str, float] = MappingProxyType({})  # of the open score


@dataclass(frozen=True)
class Measured:
    """What was found out by trying."""

    left_out: tuple[LeftOut, ...] = ()  # each photo without itself
    confirmed: tuple[LeftOut, ...] = ()  # further photos whose class a person confirmed
    strange: tuple[LeftOut, ...] = ()  # photos without their class: what unknown ones would score
    unknown: tuple[LeftOut, ...] = ()  # known unknowns, each without itself and its like
    own: float = 0.0  # mean score of photos that are enrolled: nothing is less unknown
    alike: float = 0.0  # mean cosine between classes


class Trials:
    """A support of which parts are enrolled in turn; what its photos have in common is found once, if the head can."""

    def __init__(self, head: Head, views: Features, label: Labels, aside: Features | None = None) -> None:
        self.label, self.min_way = label, head.min_way
        every, self._class_of = with_unknowns(head, views, label, aside)
        self.aside = np.arange(len(views), len(every))
        self._enroll = head.trials(every, every)

    def scored(
        self, kept: Labels, classes: Labels, asked: Labels, shots: Labels | int, aside: Labels | None = None
    ) -> list[LeftOut]:
        """Enroll rows ``kept`` of the support as these classes, beside the known unknowns (rows ``aside``, or all).

        Photo ``asked[i]`` is of a class of which ``shots[i]`` are enrolled."""
        aside = self.aside if aside is None else aside
        ask = self._enroll(np.concatenate([kept, aside]), np.concatenate([classes, np.full(len(aside), UNKNOWN)]))
        shots, rows = np.broadcast_to(shots, len(asked)), []
        for start in range(0, len(asked), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            rows += _rows(ask(asked[some]), asked[some], self._class_of[asked[some]], shots[some])
        return rows


def measure(
    head: Head,
    views: Features,
    label: Labels,
    *,
    aside: Features | None = None,
    before: Sequence[LeftOut] = (),
    changed: Collection[int] | None = None,
) -> Measured:
    """With many photos and classes only those of the classes ``changed`` are left out, and added to ``before``.

    A new class hardly moves the scores of old ones.  ``before`` counts photos and classes as they are now.
    """
    trials, every = Trials(head, views, label, aside), np.arange(len(label))
    if changed is None or len(label) * (int(label.max()) + 1) <= FEW_PAIRS:
        changed, before = None, ()
    return Measured(
        left_out=(*before, *leave_one_out(trials, changed)),
        strange=tuple(strangers(trials)),
        unknown=() if aside is None else tuple(unknown_scores(trials, head, views, aside)),
        own=float(np.mean([each.score for each in trials.scored(every, label, spread(every, 64), 0)])),
        alike=class_likeness(views.vec, label),
    )


def with_unknowns(
    head: Head, features: Features, label: Labels, aside: Features | None
) -> tuple[Features, npt.NDArray[np.int64]]:
    """The support and its labels, with the known unknowns behind it if there are any that the head uses."""
    if aside is None or not head.takes_unknown or not len(aside):
        return features, label
    return join([features, aside]), np.concatenate([label, np.full(len(aside), UNKNOWN)])


def leave_one_out(trials: Trials, only: Collection[int] | None = None) -> list[LeftOut]:
    """Of every photo whose class has another one (of a class with very many photos, some); of the classes ``only``.

    Round r leaves the r-th photo out of every such class and scores these photos together.  So a support is enrolled as
    often as its largest class has photos and not once per photo.
    """
    label = trials.label
    shots = np.bincount(label)
    wanted = range(len(shots)) if only is None else sorted(only)
    places = np.argsort(label, kind="stable")
    start = np.cumsum(shots) - shots
    turns = [spread(places[start[c] : start[c] + shots[c]], ROUNDS) for c in wanted if shots[c] > 1]
    left_out: list[LeftOut] = []
    for r in range(max(map(len, turns), default=0)):
        out = np.array([rows[r] for rows in turns if r < len(rows)])
        kept = np.delete(np.arange(len(label)), out)
        left_out += trials.scored(kept, label[kept], out, shots[label[out]] - 1)
    return left_out


def strangers(trials: Trials) -> list[LeftOut]:
    """What unknown photos would score: those of a class that is left out altogether."""
    label = trials.label
    n_way = int(label.max()) + 1
    if n_way - 1 < max(1, trials.min_way):
        return []
    left_out = []
    for c in spread(np.arange(n_way), CLASSES).tolist():
        kept, rows = np.flatnonzero(label != c), np.flatnonzero(label == c)
        others = label[kept] - (label[kept] > c)
        scored = trials.scored(kept, others, rows, 0)
        left_out += [each._replace(nearest=each.nearest + (each.nearest >= c)) for each in scored]
    return left_out


def unknown_scores(trials: Trials, head: Head, views: Features, aside: Features) -> list[LeftOut]:
    """What known unknowns score, each part of them while the others are enrolled."""
    label, every = trials.label, np.arange(len(views))
    if not head.takes_unknown:
        rows = np.arange(len(aside))
        return _rows(head.compare(head.enroll(views, label), aside), rows, np.full(len(rows), UNKNOWN), 0 * rows)
    left_out = []
    for fold in range(min(FOLDS, len(aside))):
        part = trials.aside[fold::FOLDS]
        left_out += trials.scored(every, label, part, 0, np.setdiff1d(trials.aside, part))
    return [each._replace(photo=each.photo - len(views)) for each in left_out]


def _rows(compared: Scores, photos: Labels, label: Labels, shots: Labels) -> list[LeftOut]:
    """Row i of the scores belongs to photo i, of class ``label[i]``."""
    columns = (label, shots, compared.open_score.astype(float), photos, compared.logits.argmax(axis=1))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    parts = [{name: float(values[i]) for name, values in compared.parts.items()} for i in range(len(label))]
    return [LeftOut(*row)._replace(parts=own) for row, own in zip(rows, parts, strict=True)]
