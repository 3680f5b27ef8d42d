"""What the support says about itself: photos scored without themselves, and classes scored without themselves."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from glocal_runtime.model import Head
from glocal_runtime.support import Support
from glocal_runtime.threshold import LeftOut
from glocal_runtime.views import Array, Labels, Views, class_means, join, spread

ROUNDS = 32  # at most this many photos of a class are left out in turn: more hardly change a threshold
STRANGERS = 12  # classes, and photos of each, that are scored as strangers to the rest
PHOTOS = 4
FEW_PAIRS = 20_000  # photos x classes up to which leaving every photo out takes a moment


def leave_one_out(head: Head, views: Views, label: Labels, *, asked: Views | None = None) -> list[LeftOut]:
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
        compared = head.compare(head.enroll(views.rows(kept), label[kept]), query.rows(out))
        nearest = compared.logits.argmax(axis=1)
        for i, row in enumerate(out.tolist()):
            c = int(label[row])
            parts = {name: float(value[i]) for name, value in compared.parts.items()}
            found.append(LeftOut(c, int(shots[c]) - 1, float(compared.open_score[i]), row, int(nearest[i]), parts))
    return found


def leave_one_out_of(head: Head, views: Views, label: Labels, only: Collection[int]) -> list[LeftOut]:
    """Photos of the classes ``only``; the others enter as their mean, which is all that most methods keep of a class.

    Leaving out every photo of 200 classes takes many seconds, and a new class hardly moves the scores of the old ones.
    """
    others = np.array([c for c in range(int(label.max()) + 1) if c not in only], dtype=np.int64)
    rows = np.flatnonzero(~np.isin(label, others))
    condensed = join([_means(views, label).rows(others), views.rows(rows)])
    found = leave_one_out(head, condensed, np.concatenate([others, label[rows]]))
    return [each._replace(photo=int(rows[each.photo - len(others)])) for each in found]


def left_out_scores(
    head: Head, views: Views, label: Labels, *, before: Sequence[LeftOut] = (), changed: Collection[int] | None = None
) -> list[LeftOut]:
    """Every photo left out in turn; with many photos and classes only those of ``changed``, added to ``before``.

    ``before`` counts photos and classes as they are now.
    """
    if changed is None or len(label) * (int(label.max()) + 1) <= FEW_PAIRS:
        return leave_one_out(head, views, label)
    return [*before, *(leave_one_out_of(head, views, label, changed) if changed else [])]


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


def strange_scores(head: Head, views: Views, label: Labels) -> list[float]:
    """What unknown photos would score, from the support alone: a class as a stranger to all others, one mean each.

    The others enter as their mean, which is all that most methods keep of a class; of many classes ``STRANGERS`` are
    asked, ``PHOTOS`` photos each.
    """
    return [float(scores.mean()) for scores in strangers(head, views, label)]


def strangers(head: Head, views: Views, label: Labels, *, asked: Views | None = None) -> list[Array]:
    """The scores behind ``strange_scores``, class by class; ``asked`` as in ``leave_one_out``."""
    n_way = int(label.max()) + 1
    if n_way - 1 < max(1, head.min_way):
        return []
    means, classes = _means(views, label), np.arange(n_way)
    found = []
    for c in spread(classes, STRANGERS).tolist():
        state = head.enroll(means.rows(classes != c), classes[:-1])
        rows = spread(np.flatnonzero(label == c), PHOTOS)
        found.append(head.compare(state, (views if asked is None else asked).rows(rows)).open_score)
    return found


def _means(views: Views, label: Labels) -> Views:
    return Views(class_means(views.vec, label), None if views.local is None else class_means(views.local, label))
