"""What the support says about itself: photos scored without themselves, and classes without photos or altogether.

Known unknowns (``aside``) are part of every support that is tried here, when the head uses them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from glocal.recognizer.calibration.threshold import LeftOut
from glocal.recognizer.features import UNKNOWN, Features, Labels, class_means, join, spread
from glocal.recognizer.heads.head import Head, Scores
from glocal.recognizer.support import Support

ROUNDS = 32  # at most this many photos of a class are left out in turn: more hardly change a threshold
CLASSES = 12  # classes that are scored as strangers to the rest, or with a single photo
SINGLES, ASKED = 2, 4  # photos that a class is cut down to in turn, and photos asked about each
FOLDS = 5  # parts of the known unknowns that are left out in turn
FEW_PAIRS = 20_000  # photos x classes up to which leaving every photo out takes a moment
ALIKE = 0.4  # what is usual between classes, for files that do not say
ENOUGH = 3  # photos of a class from which on it can be cut down
AT_ONCE = 1024  # photos asked about together: all of 10,000 classes against all classes would be gigabytes


@dataclass(frozen=True)
class Measured:
    """What was found out by trying."""

    left_out: tuple[LeftOut, ...] = ()  # each photo without itself
    alone: tuple[LeftOut, ...] = ()  # photos of a class cut down to one photo, the other classes as they are
    strange: tuple[LeftOut, ...] = ()  # photos without their class: what unknown ones would score
    unknown: tuple[LeftOut, ...] = ()  # known unknowns, each without itself and its like
    own: float = 0.0  # mean score of photos that are enrolled: nothing is less unknown
    alike: float = ALIKE  # mean cosine between classes


class Trials:
    """A support of which parts are enrolled in turn; what its photos have in common is found once, if the head can.

    ``asked``: other views of the same photos, to be scored in their place.
    """

    def __init__(
        self,
        head: Head,
        views: Features,
        label: Labels,
        *,
        asked: Features | None = None,
        aside: Features | None = None,
    ) -> None:
        self.label, self.min_way = label, head.min_way
        every = views if aside is None or not head.takes_unknown else join([views, aside])
        self.aside = np.arange(len(views), len(every))
        self._class_of = np.concatenate([label, np.full(len(self.aside), UNKNOWN)])
        self._enroll = head.trials(every, every if asked is None else asked)

    def scored(
        self, kept: Labels, classes: Labels, asked: Labels, shots: Labels | int, aside: Labels | None = None
    ) -> list[LeftOut]:
        """Rows ``kept`` of the support are enrolled as these classes, beside them the known unknowns (rows ``aside``,
        or all); photo ``asked[i]`` is of a class of which ``shots[i]`` are enrolled."""
        aside = self.aside if aside is None else aside
        ask = self._enroll(np.concatenate([kept, aside]), np.concatenate([classes, np.full(len(aside), UNKNOWN)]))
        shots, found = np.broadcast_to(shots, len(asked)), []
        for start in range(0, len(asked), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            found += _rows(ask(asked[some]), asked[some], self._class_of[asked[some]], shots[some])
        return found


def measure(
    head: Head,
    views: Features,
    label: Labels,
    *,
    aside: Features | None = None,
    before: Sequence[LeftOut] = (),
    changed: Collection[int] | None = None,
) -> Measured:
    """``before`` and ``changed`` as in ``left_out_scores``."""
    trials, every = Trials(head, views, label, aside=aside), np.arange(len(label))
    return Measured(
        tuple(left_out_scores(trials, before=before, changed=changed)),
        tuple(single_photos(trials)),
        tuple(strangers(trials)),
        () if aside is None else tuple(unknown_scores(trials, head, views, aside)),
        float(np.mean([each.score for each in trials.scored(every, label, spread(every, 64), 0)])),
        _alike(views, label),
    )


def enroll(head: Head, views: Features, label: Labels, aside: Features | None = None) -> object:
    """The state of the support, with the known unknowns if there are any that the head uses."""
    if aside is None or not head.takes_unknown or not len(aside):
        return head.enroll(views, label)
    return head.enroll(join([views, aside]), np.concatenate([label, np.full(len(aside), UNKNOWN)]))


def leave_one_out(trials: Trials, only: Collection[int] | None = None) -> list[LeftOut]:
    """Of every photo whose class has another one (of a class with very many photos, some); of the classes ``only``.

    Round r leaves the r-th photo out of every such class and scores these photos together, so a support is enrolled as
    often as its largest class has photos and not once per photo.
    """
    label = trials.label
    shots = np.bincount(label)
    wanted = range(len(shots)) if only is None else sorted(only)
    places = np.argsort(label, kind="stable")
    start = np.cumsum(shots) - shots
    turns = [spread(places[start[c] : start[c] + shots[c]], ROUNDS) for c in wanted if shots[c] > 1]
    found: list[LeftOut] = []
    for r in range(max(map(len, turns), default=0)):
        out = np.array([rows[r] for rows in turns if r < len(rows)])
        kept = np.delete(np.arange(len(label)), out)
        found += trials.scored(kept, label[kept], out, shots[label[out]] - 1)
    return found


def single_photos(trials: Trials) -> list[LeftOut]:
    """What photos of a class with one photo score, from classes with more, each cut down to one in turn."""
    label, found = trials.label, []
    for c in spread(np.flatnonzero(np.bincount(label) >= ENOUGH), CLASSES).tolist():
        rows = np.flatnonzero(label == c)
        for keep in rows[:SINGLES].tolist():
            kept = np.flatnonzero((label != c) | (np.arange(len(label)) == keep))
            asked = spread(rows[rows != keep], ASKED)
            found += trials.scored(kept, label[kept], asked, 1)
    return found


def strangers(trials: Trials) -> list[LeftOut]:
    """What unknown photos would score: those of a class that is left out altogether."""
    label = trials.label
    n_way = int(label.max()) + 1
    if n_way - 1 < max(1, trials.min_way):
        return []
    found = []
    for c in spread(np.arange(n_way), CLASSES).tolist():
        kept, rows = np.flatnonzero(label != c), np.flatnonzero(label == c)
        others = label[kept] - (label[kept] > c)
        scored = trials.scored(kept, others, rows, 0)
        found += [each._replace(nearest=each.nearest + (each.nearest >= c)) for each in scored]
    return found


def unknown_scores(trials: Trials, head: Head, views: Features, aside: Features) -> list[LeftOut]:
    """What known unknowns score, each part of them while the others are enrolled."""
    label, every = trials.label, np.arange(len(views))
    if not head.takes_unknown:
        rows = np.arange(len(aside))
        return _rows(head.compare(head.enroll(views, label), aside), rows, np.full(len(rows), UNKNOWN), 0 * rows)
    found = []
    for fold in range(min(FOLDS, len(aside))):
        part = trials.aside[fold::FOLDS]
        found += trials.scored(every, label, part, 0, np.setdiff1d(trials.aside, part))
    return [each._replace(photo=each.photo - len(views)) for each in found]


def left_out_scores(
    trials: Trials, *, before: Sequence[LeftOut] = (), changed: Collection[int] | None = None
) -> list[LeftOut]:
    """Every photo left out in turn; with many photos and classes only those of ``changed``, added to ``before``:
    asking about all photos of thousands of classes takes long, and a new class hardly moves the scores of the old ones.

    ``before`` counts photos and classes as they are now.
    """
    label = trials.label
    if changed is None or len(label) * (int(label.max()) + 1) <= FEW_PAIRS:
        return leave_one_out(trials)
    return [*before, *(leave_one_out(trials, changed) if changed else [])]


def carried_over(left: Sequence[LeftOut], old: Support, new: Support) -> list[LeftOut]:
    """Left-out scores of the classes whose photos are the same before and after, renumbered for ``new``."""
    place = {id(bank): i for i, bank in enumerate(new.classes.values())}
    banks = list(old.classes.values())
    start_old, start_new = (np.cumsum([0, *each.shots]).tolist() for each in (old, new))
    kept = []
    for each in left:
        label = place.get(id(banks[each.label]))
        if label is not None:
            photo = each.photo - start_old[each.label] + start_new[label]
            nearest = place.get(id(banks[each.nearest]), label)  # a class that is gone can mislead nobody
            kept.append(each._replace(photo=photo, label=label, nearest=nearest))
    return kept


def _rows(compared: Scores, photos: Labels, label: Labels, shots: Labels) -> list[LeftOut]:
    """Row i of the scores belongs to photo i, of class ``label[i]``."""
    nearest = compared.logits.argmax(axis=1)
    return [
        LeftOut(
            c,
            n,
            float(compared.open_score[i]),
            photo,
            int(nearest[i]),
            {name: float(values[i]) for name, values in compared.parts.items()},
        )
        for i, (photo, c, n) in enumerate(zip(photos.tolist(), label.tolist(), shots.tolist(), strict=True))
    ]


def _alike(views: Features, label: Labels) -> float:
    """Mean cosine between the mean vectors of different classes."""
    mean = class_means(views.vec, label).astype(np.float64)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True).clip(1e-12)
    n_way = len(mean)
    return float((np.square(mean.sum(axis=0)).sum() - np.square(mean).sum()) / max(n_way * (n_way - 1), 1))
