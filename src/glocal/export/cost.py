"""What an export costs in accuracy: the same pictures asked of two recognizers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from glocal.metrics.openset import auroc
from glocal.recognizer.check import Check, check
from glocal.recognizer.gather import Labelled
from glocal_runtime.folder import Contents
from glocal_runtime.left_out import left_out, strangers
from glocal_runtime.naming import UNKNOWN_NAME
from glocal_runtime.recognizer import Model, Recognizer
from glocal_runtime.verify import TOLERANCE, relative


@dataclass(frozen=True)
class Measured:
    """Share of known pictures named right, whatever the threshold, and how well unknown ones are told from them."""

    acc: float | None
    auroc: float | None  # None where there is nothing to tell apart

    def to_json(self) -> dict[str, float | None]:
        return dict(vars(self))


def on_folder(recognizer: Any, labelled: Labelled) -> tuple[Check, Measured]:
    """On class folders and ``unknown``."""
    found = check(recognizer, labelled)
    known = [each.truth != UNKNOWN_NAME for each in found.judged]
    scores = [each.answer.open_score for each in found.judged]
    acc = found.named_right.value if any(known) else None
    return found, Measured(acc, auroc(scores, known) if 0 < sum(known) < len(known) else None)


def on_thumbnails(model: Model, contents: Contents) -> Measured:
    """Without labelled pictures: every support photo, as its thumbnail, asked of the classes without it; unknown are
    the photos of each class to the classes without it."""
    support, label = contents.support.views(), contents.support.class_of
    asked = model.embed(photo.thumbnail for photo in contents.support.photos).full()
    known = left_out(model.head, support, label, asked=asked)
    strange = [float(score) for some in strangers(model.head, support, label, asked=asked) for score in some]
    acc = float(np.mean([each.nearest == each.label for each in known])) if known else None
    scores = [each.score for each in known] + strange
    both = bool(known) and bool(strange)
    return Measured(acc, auroc(scores, [True] * len(known) + [False] * len(strange)) if both else None)


@dataclass(frozen=True)
class Agreement:
    """Two recognizers on the same pictures."""

    pictures: int
    same_label: int
    at_threshold: int  # of the others, those whose score is so near the threshold that rounding decides
    largest_difference: float  # of open scores, relative to max(1, |score|)

    def to_json(self) -> dict[str, float]:
        return dict(vars(self))


def agreement(ours: Check, theirs: Check) -> Agreement:
    pairs = [(a.answer, b.answer) for a, b in zip(ours.judged, theirs.judged, strict=True)]
    others = [(a, b) for a, b in pairs if a.label != b.label]
    at = sum(relative(a.threshold, a.open_score) <= TOLERANCE for a, _ in others)
    largest = max((relative(a.open_score, b.open_score) for a, b in pairs), default=0.0)
    return Agreement(len(pairs), len(pairs) - len(others), at, largest)


def exported(model: Model, contents: Contents) -> Recognizer:
    return Recognizer(model, contents, model.judge(contents.support))
