"""What the support says about itself: photos scored without themselves, and classes without photos or altogether.

Known unknowns (``aside``) are part of every support that is tried here, when the head uses them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from glocal_runtime.model import UNKNOWN, Head, Scores
from glocal_runtime.support import Support
from glocal_runtime.threshold import LeftOut
from glocal_runtime.views import Array, Labels, Views, class_means, join, spread

ROUNDS = 32  # at most this many photos of a class are left out in turn: more hardly change a threshold
CLASSES = 12  # classes that are scored as strangers to the rest, or with a single photo
SINGLES, ASKED = 2, 4  # photos that a class is cut down to in turn, and photos asked about each
FOLDS = 5  # parts of the known unknowns that are left out in turn
FEW_PAIRS = 20_000  # photos x classes up to which leaving every photo out takes a moment
ALIKE = 0.4  # what is usual between classes, for files that do not say
ENOUGH = 3  # photos of a class from which on it can be cut down


@dataclass(frozen=True)
class Measured:
    """What was found out by trying."""

    left_out: tuple[LeftOut, ...] = ()  # each photo without itself
    alone: tuple[LeftOut, ...] = ()  # photos of a class cut down to one photo, the other classes as they are
    strange: tuple[LeftOut, ...] = ()  # photos without their class: what unknown ones would score
    unknown: tuple[LeftOut, ...] = ()  # known unknowns, each without itself and its like
    own: float = 0.0  # mean score of photos that are enrolled: nothing is less unknown
    alike: float = ALIKE  # mean cosine between classes


def measure(
    head: Head,
    views: Views,
    label: Labels,
    *,
    aside: Views | None = None,
    before: Sequence[LeftOut] = (),
    changed: Collection[int] | None = None,
) -> Measured:
    """``before`` and ``changed`` as in ``left_out_scores``."""
    used = aside if head.takes_unknown else None
    own = head.compare(enroll(head, views, label, used), views.rows(spread(np.arange(len(label)), 64)))
    return Measured(
        tuple(left_out_scores(head, views, label, aside=used, before=before, changed=changed)),
        tuple(single_photos(head, views, label, aside=used)),
        tuple(strangers(head, views, label, aside=used)),
        () if aside is None else tuple(unknown_scores(head, views, label, aside)),
        float(own.open_score.mean()),
        _alike(views, label),
    )


def enroll(head: Head, views: Views, label: Labels, aside: Views | None = None) -> object:
    """The state of the support, with the known unknowns if there are any that the head uses."""
    if aside is None or not head.takes_unknown or not len(aside):
        return head.enroll(views, label)
    return head.enroll(join([views, aside]), np.concatenate([label, np.full(len(aside), UNKNOWN)]))


def leave_one_out(
    head: Head, views: Views, label: Labels, *, asked: Views | None = None, aside: Views | None = None
) -> list[LeftOut]:
    """Of every photo whose class has another one (of a class with very many photos, some).

    ``asked``: other views of the same photos, to be scored in their place.

    Round r leaves the r-th photo out of every class that has two or more and scores these photos together, so a support
    is enrolled as often as its largest class has photos and not once per photo.
    """
    query = views if asked is None else asked
    shots = np.bincount(label)
    members = [np.flatnonzero(label == c) if n > 1 else np.empty(0, np.int64) for c, n in enumerate(shots)]
    turns = [spread(rows, ROUNDS) for rows in members]
    found: list[LeftOut] = []
    for r in range(max(map(len, turns), default=0)):
        out = np.array([rows[r] for rows in turns if r < len(rows)])
        kept = np.ones(len(label), dtype=bool)
        kept[out] = False
        compared = head.compare(enroll(head, views.rows(kept), label[kept], aside), query.rows(out))
        found += _scored(compared, out, label, shots[label[out]] - 1)
    return found


def single_photos(head: Head, views: Views, label: Labels, *, aside: Views | None = None) -> list[LeftOut]:
    """What photos of a class with one photo score, from classes with more, each cut down to one in turn."""
    shots, found = np.bincount(label), []
    for c in spread(np.flatnonzero(shots >= ENOUGH), CLASSES).tolist():
        rows = np.flatnonzero(label == c)
        for keep in rows[:SINGLES].tolist():
            kept = label != c
            kept[keep] = True
            asked = spread(rows[rows != keep], ASKED)
            compared = head.compare(enroll(head, views.rows(kept), label[kept], aside), views.rows(asked))
            found += _scored(compared, asked, label, [1] * len(asked))
    return found


def strangers(
    head: Head, views: Views, label: Labels, *, asked: Views | None = None, aside: Views | None = None
) -> list[LeftOut]:
    """What unknown photos would score: those of a class that is left out altogether; ``asked`` as above."""
    n_way = int(label.max()) + 1
    if n_way - 1 < max(1, head.min_way):
        return []
    query, found = views if asked is None else asked, []
    for c in spread(np.arange(n_way), CLASSES).tolist():
        kept, rows = label != c, np.flatnonzero(label == c)
        others = label[kept] - (label[kept] > c)
        compared = head.compare(enroll(head, views.rows(kept), others, aside), query.rows(rows))
        scored = _scored(compared, rows, label, [0] * len(rows))
        found += [each._replace(nearest=each.nearest + (each.nearest >= c)) for each in scored]
    return found


def unknown_scores(head: Head, views: Views, label: Labels, aside: Views) -> list[LeftOut]:
    """What known unknowns score, each part of them while the others are enrolled."""
    parts = [np.arange(len(aside))[i::FOLDS] for i in range(min(FOLDS, len(aside)))]
    if not head.takes_unknown:
        parts = [np.arange(len(aside))]
    found = []
    for part in parts:
        rest = np.setdiff1d(np.arange(len(aside)), part)
        compared = head.compare(enroll(head, views, label, aside.rows(rest)), aside.rows(part))
        found += _scored(compared, part, np.full(len(aside), UNKNOWN), [0] * len(part))
    return found


def left_out_scores(
    head: Head,
    views: Views,
    label: Labels,
    *,
    aside: Views | None = None,
    before: Sequence[LeftOut] = (),
    changed: Collection[int] | None = None,
) -> list[LeftOut]:
    """Every photo left out in turn; with many photos and classes only those of ``changed``, added to ``before``.

    ``before`` counts photos and classes as they are now.
    """
    if changed is None or len(label) * (int(label.max()) + 1) <= FEW_PAIRS:
        return leave_one_out(head, views, label, aside=aside)
    return [*before, *(_leave_one_out_of(head, views, label, changed, aside) if changed else [])]


def _leave_one_out_of(
    head: Head, views: Views, label: Labels, only: Collection[int], aside: Views | None
) -> list[LeftOut]:
    """Photos of the classes ``only``; the others enter as their mean, which is all that most methods keep of a class.

    Leaving out every photo of 200 classes takes many seconds, and a new class hardly moves the scores of the old ones.
    """
    others = np.array([c for c in range(int(label.max()) + 1) if c not in only], dtype=np.int64)
    rows = np.flatnonzero(~np.isin(label, others))
    condensed = join([_means(views, label).rows(others), views.rows(rows)])
    found = leave_one_out(head, condensed, np.concatenate([others, label[rows]]), aside=aside)
    return [each._replace(photo=int(rows[each.photo - len(others)])) for each in found]


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


def _scored(compared: Scores, rows: Labels, label: Labels, shots: Iterable[int]) -> list[LeftOut]:
    """Row i of the scores belongs to photo ``rows[i]``, of whose class ``shots[i]`` photos were enrolled."""
    nearest = compared.logits.argmax(axis=1)
    return [
        LeftOut(
            int(label[row]),
            int(n),
            float(compared.open_score[i]),
            int(row),
            int(nearest[i]),
            {name: float(values[i]) for name, values in compared.parts.items()},
        )
        for i, (row, n) in enumerate(zip(rows.tolist(), shots, strict=True))
    ]


def _alike(views: Views, label: Labels) -> float:
    """Mean cosine between the mean vectors of different classes."""
    mean = class_means(views.vec, label).astype(np.float64)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True).clip(1e-12)
    n_way = len(mean)
    return float((np.square(mean.sum(axis=0)).sum() - np.square(mean).sum()) / max(n_way * (n_way - 1), 1))


def _means(views: Views, label: Array) -> Views:
    return Views(class_means(views.vec, label), None if views.local is None else class_means(views.local, label))
