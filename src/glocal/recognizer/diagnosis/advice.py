"""Advice about a support: what a careful colleague would say about the photos before they are trusted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from glocal.common.errors import DataError
from glocal.common.words import listed
from glocal.recognizer.decision import Decision
from glocal.recognizer.diagnosis.exposure import poor_photos
from glocal.recognizer.support import NEAR, Support, correlation

ENOUGH = 5  # photos of a class that need no remark
CONFUSED = 1 / 3  # share of the photos of two classes that would get the other's name
SHOWN = 6  # classes named in one line
MOVED = 0.1  # of the spread of known photos; a threshold that moves less counts as unmoved
ROWS = 512  # photos compared with all others at once


@dataclass(frozen=True)
class Finding:
    """One line with a suggestion."""

    kind: str
    text: str
    classes: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, str | list[str]]:
        """Plain values."""
        return {"kind": self.kind, "text": self.text, "classes": sorted(self.classes)}

    @classmethod
    def unreadable(cls, path: str, why: str) -> Finding:
        """A photo that was left out, and why."""
        return cls("unreadable", f"left out {path}: {why}")

    @classmethod
    def nested(cls, name: str, below: Sequence[str]) -> Finding:
        """Folders within the folder of a class."""
        return cls(
            "nested",
            f"class {name!r} is made of the folders {_listed(below)} in it; if these are the classes, "
            f"enroll the folder {name!r} instead",
            frozenset({name}),
        )

    @classmethod
    def loose(cls, names: Sequence[str]) -> Finding:
        """Pictures beside the folders of the classes, which belong to none."""
        lie = "picture beside the class folders was" if len(names) == 1 else "pictures beside the class folders were"
        return cls("loose", f"{len(names)} {lie} passed over ({_listed(names)}); put each into the folder of its class")

    @classmethod
    def known_unknowns(cls, n: int) -> Finding:
        """Photos of a folder named unknown/, which is no class."""
        photos = "photo in unknown/ is a known unknown" if n == 1 else "photos in unknown/ are known unknowns"
        return cls("known unknowns", f"{n} {photos}: of other things than the classes, and to be called unknown")

    @classmethod
    def unknown_unused(cls, model: str) -> Finding:
        """Known unknowns for a head that does not learn from them."""
        return cls(
            "unknown unused",
            f"{model} does not learn from known unknowns; to let them lower the threshold, say what that may cost: "
            "`glocal threshold FILE --with-unknown 0.1`",
        )

    @classmethod
    def unconfirmed(cls, n: int) -> Finding:
        """Confirmed photos, after the classes changed."""
        return cls(
            "unconfirmed",
            f"{n} confirmed photos no longer count, because the classes changed; `glocal check FILE LABELLED --learn` "
            "counts them again",
        )

    @classmethod
    def by_hand(cls, value: float) -> Finding:
        """A threshold set by hand, after the classes changed."""
        return cls(
            "by hand",
            f"the threshold {value:.4g} was set by hand and is kept, although the classes changed; "
            "`glocal threshold FILE --target-rate 0.05` computes one",
        )


def without_duplicates(support: Support) -> tuple[Support, list[Finding]]:
    """Without photos that repeat another of their class; the same photo in two classes is refused."""
    owner: dict[str, tuple[str, str]] = {}
    classes, findings = dict(support.classes), []
    for name, bank in support.classes.items():
        keep: list[int] = []
        for i, photo in enumerate(bank.photos):
            first_class, first = owner.setdefault(photo.digest, (name, photo.name))
            if first_class != name:
                raise DataError(
                    f"the photos {first} of class {first_class!r} and {photo.name} of class {name!r} are the same "
                    "picture; one of the two names is wrong, remove one",
                    code="photo-in-two-classes",
                )
            if photo.name != first or any(bank.photos[k].digest == photo.digest for k in keep):
                text = f"left out {photo.name}: the same picture as {first} of {name!r}; remove it"
                if photo.name == first:
                    text = f"left out {photo.name}: {name!r} has it already"
                findings.append(Finding("duplicate", text, frozenset({name})))
            else:
                keep.append(i)
        if len(keep) < len(bank):
            classes[name] = bank.rows(keep)
    return (Support.of(classes) if findings else support), findings


def advice(support: Support, decision: Decision) -> list[Finding]:
    return [
        *_near_duplicates(support),
        *_poor(support),
        *_strays(support, decision),
        *_confusions(support, decision),
        *_few(support),
    ]


def threshold_moved(
    names_before: Sequence[str], before: Decision, names: Sequence[str], after: Decision
) -> list[Finding]:
    """What a change does to the classes that were there: how far the threshold moved beside their photos.

    A new class and known unknowns move what every photo scores, and the threshold with it.
    """
    old, new = before.threshold.value, after.threshold.value
    old_mean, new_mean = _mean_scores(names_before, before), _mean_scores(names, after)
    if not (math.isfinite(old) and math.isfinite(new)) or set(names_before).isdisjoint(names):
        return []
    scored = [new_mean[name] - old_mean[name] for name in new_mean if name in old_mean]
    shift = (new - old - (float(np.mean(scored)) if scored else 0.0)) / (after.threshold.spread or 1.0)
    if abs(shift) < MOVED:
        return [Finding("threshold kept", "beside the photos of the classes that were there the threshold is the same")]
    which = "stricter" if shift < 0 else "more lenient"
    return [Finding("threshold moved", f"the threshold is {which} ({shift:+.1f}; 1 is how much known photos differ)")]


def _mean_scores(names: Sequence[str], decision: Decision) -> dict[str, float]:
    """What left-out photos score on average, for each class that has some."""
    scores: dict[str, list[float]] = {}
    for each, score in zip(decision.left_out, decision.levelled(decision.left_out).tolist(), strict=True):
        scores.setdefault(names[each.label], []).append(score)
    return {name: float(np.mean(values)) for name, values in scores.items()}


def _near_duplicates(support: Support) -> Iterator[Finding]:
    label, signature = support.class_of.tolist(), support.bank.signature
    for start in range(0, len(label), ROWS):
        alike = correlation(signature[start : start + ROWS], signature[start:])
        for i, j in (np.argwhere(np.triu(alike >= NEAR, 1)) + start).tolist():
            a, b = support.names[label[i]], support.names[label[j]]
            pair = f"{support.photos[i].name} of {a!r} and {support.photos[j].name}"
            what_to_do = (
                "keep one: near copies make the threshold too strict"
                if a == b
                else f"of {b!r}: check which class they belong to"
            )
            yield Finding("near duplicate", f"{pair} are nearly the same picture; {what_to_do}", frozenset({a, b}))


def _poor(support: Support) -> Iterator[Finding]:
    for i, fault in poor_photos(support).items():
        name = support.names[support.class_of[i]]
        yield Finding(
            "poor photo",
            f"{support.photos[i].name} of {name!r} looks {fault} beside the others; replace it, unless photos to come "
            "look like that too",
            frozenset({name}),
        )


def _strays(support: Support, decision: Decision) -> Iterator[Finding]:
    for each in decision.left_out:
        if each.nearest != each.label:
            own, other = support.names[each.label], support.names[each.nearest]
            yield Finding(
                "stray",
                f"{support.photos[each.photo].name} of {own!r} looks more like {other!r}; check that it is "
                f"in the right folder, or add photos of {own!r} like it",
                frozenset({own}),
            )


def _confusions(support: Support, decision: Decision) -> Iterator[Finding]:
    tried = Counter(each.label for each in decision.left_out)
    mixed: Counter[tuple[int, int]] = Counter()
    for each in decision.left_out:
        if each.nearest != each.label:
            mixed[min(each.label, each.nearest), max(each.label, each.nearest)] += 1
    for (a, b), n in mixed.most_common():
        total = tried[a] + tried[b]
        if n > 1 and n >= CONFUSED * total:
            one, other = support.names[a], support.names[b]
            yield Finding(
                "confusion",
                f"{one!r} and {other!r} will be confused ({n} of {total} photos, each judged by the others); "
                "add photos that show the difference, or merge the two",
                frozenset({one, other}),
            )


def _few(support: Support) -> Iterator[Finding]:
    single = [name for name, n in zip(support.names, support.shots, strict=True) if n == 1]
    some = [name for name, n in zip(support.names, support.shots, strict=True) if 1 < n < ENOUGH]
    if single:
        yield Finding(
            "few photos",
            f"only one photo of {_listed(single)}: nothing can be learned from it about how photos of this class "
            f"differ; {ENOUGH} or more are much better",
            frozenset(single),
        )
    if some:
        yield Finding(
            "few photos",
            f"fewer than {ENOUGH} photos of {_listed(some)}: names and threshold get better with more",
            frozenset(some),
        )


def _listed(names: Sequence[str]) -> str:
    return listed([repr(name) for name in names], SHOWN)
