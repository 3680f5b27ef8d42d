"""The recognizer at one version, as everybody may read it at once; it never changes, a change makes a new one.

All that serving reads from a recognizer is read here; what changes one is in ``workspace.py``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from glocal.recognizer import Prediction, Recognizer
from glocal.recognizer.batches import BATCH, Batch
from glocal.recognizer.explanation import explain
from glocal.recognizer.features import Features, join
from glocal.recognizer.photos.images import to_png
from glocal.recognizer.photos.sources import Picture, Unreadable
from glocal.recognizer.support import UNKNOWN_NAME, Photo
from glocal.serve.problems import no_classes
from glocal.serve.recent_queries import Query
from glocal.serve.schemas import NewThreshold

RATES = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.999)


@dataclass(frozen=True)
class QueryAnswer:
    """A photo that was asked about, and the answer of one version."""

    query: Query
    answer: Prediction


Result: TypeAlias = QueryAnswer | Unreadable


@dataclass(frozen=True, eq=False)
class Snapshot:
    version: int
    recognizer: Recognizer | None  # None before the first class
    undo_label: str | None
    redo_label: str | None

    def enrolled(self) -> Recognizer:
        """The recognizer, or the problem that there is none yet."""
        if self.recognizer is None:
            raise no_classes()
        return self.recognizer

    @property
    def model_hash(self) -> str:
        """Of what made the views; empty before the first class."""
        return "" if self.recognizer is None else self.recognizer.contents.model.encoder.sha256

    @property
    def classes(self) -> tuple[str, ...]:
        return () if self.recognizer is None else self.recognizer.classes

    @property
    def class_photos(self) -> dict[str, tuple[Photo, ...]]:
        """Support photos by class, in order."""
        if self.recognizer is None:
            return {}
        return {name: bank.photos for name, bank in self.recognizer.contents.support.classes.items()}

    @cached_property
    def photos(self) -> dict[str, Photo]:
        """Support photos by digest."""
        return {photo.digest: photo for photos in self.class_photos.values() for photo in photos}

    @cached_property
    def known_unknowns(self) -> dict[str, Photo]:
        """Photos of other things, by digest."""
        bank = None if self.recognizer is None else self.recognizer.contents.unknown
        return {} if bank is None else {photo.digest: photo for photo in bank.photos}

    @cached_property
    def state(self) -> dict[str, Any]:
        """What the page shows of it."""
        recognizer = self.recognizer
        return {
            "version": self.version,
            "can_undo": self.undo_label is not None,
            "can_redo": self.redo_label is not None,
            "undo_label": self.undo_label,
            "redo_label": self.redo_label,
            "model": None if recognizer is None else recognizer.contents.model.name,
            "sees": None if recognizer is None else _seen_json(recognizer),
            "outlook": None if recognizer is None else _outlook_json(recognizer),
            "classes": [
                {"name": name, "photos": [_photo_json(each) for each in photos]}
                for name, photos in self.class_photos.items()
            ],
            "known_unknowns": [_photo_json(each) for each in self.known_unknowns.values()],
            "findings": [] if recognizer is None else [each.to_json() for each in recognizer.findings()],
            "threshold": None if recognizer is None else recognizer.threshold.to_json(),
        }

    def predict(self, photos: Sequence[Picture | Unreadable]) -> list[Result]:
        """One result per photo, in order."""
        recognizer, results = self.enrolled(), list[Result]()
        for start in range(0, len(photos), BATCH):
            batch = recognizer.embedder.batch(photos[start : start + BATCH])
            row = 0  # of the features: unreadable photos have none
            for photo, answer in zip(batch.pictures, recognizer.answer(batch), strict=True):
                if isinstance(answer, Unreadable):
                    results.append(answer)
                elif isinstance(photo, Picture):
                    views = batch.features.rows(slice(row, row + 1)).stored()
                    own = Features(views.vec.copy(), views.local)  # a view of the batch would keep all of it in memory
                    results.append(QueryAnswer(Query(photo, own), answer))
                    row += 1
        return results

    def queries(self, pictures: Iterable[Picture]) -> list[Query]:
        """Photos of an earlier time, as far as they are as the encoder sees them."""
        if self.recognizer is None:
            return []
        size = self.recognizer.embedder.preprocess.size
        same = [each for each in pictures if each.pixels.shape == (size, size, 3)]
        return [each.query for each in (self.predict(same) if same else []) if isinstance(each, QueryAnswer)]

    def answers(self, queries: Sequence[Query]) -> list[QueryAnswer]:
        """About photos that were encoded before."""
        answered: list[QueryAnswer] = []
        for start in range(0, len(queries), BATCH):
            some = queries[start : start + BATCH]
            answers = self.enrolled().answer(batch_of(some))
            pairs = zip(some, answers, strict=True)
            answered += [QueryAnswer(query, answer) for query, answer in pairs if isinstance(answer, Prediction)]
        return answered

    def overlay(self, query: Query) -> bytes:
        """A PNG: which patches of the photo match which patches of which photo."""
        (answered,) = self.answers([query])
        return to_png(explain(self.enrolled(), batch_of([query]), 0, answered.answer))

    def preview(self, choice: NewThreshold, recent: Sequence[QueryAnswer]) -> dict[str, Any]:
        """What another threshold would be and change, without changing it."""
        tried = copy.copy(self.enrolled())
        threshold = tried.set_threshold(**choice.model_dump())
        left = tried.contents.decision.levelled(tried.contents.decision.left_out)
        answers = [each.answer for each in recent]
        labels = [UNKNOWN_NAME if each.open_score > threshold.value else each.nearest for each in answers]
        for_rate = choice.value is None
        return {
            "value": threshold.value if math.isfinite(threshold.value) else None,
            "expected_false_unknown": threshold.expected if for_rate else self._expected_share(threshold.value),
            "would_change": changes([each.query for each in recent], [each.label for each in answers], labels),
            "n_recent": len(recent),
            "support_rejected": int((left > threshold.value).sum()),
            "n_support": len(left),
        }

    def _expected_share(self, value: float) -> float | None:
        """Of known photos above a threshold set by hand, between the values that target rates would lead to."""
        if not self._rate_curve:
            return None
        values, shares = zip(*self._rate_curve, strict=True)
        return float(np.interp(value, values, shares))

    @cached_property
    def _rate_curve(self) -> list[tuple[float, float]]:
        """(value, share of known photos above it), values rising."""
        tried = copy.copy(self.enrolled())
        thresholds = [tried.set_threshold(target_rate=share) for share in RATES]
        pairs = [(each.value, each.expected) for each in thresholds if each.expected is not None]
        return sorted(dict(pair for pair in pairs if math.isfinite(pair[0])).items())


def answers_changed(
    before: Recognizer | None, after: Recognizer | None, queries: Sequence[Query]
) -> list[dict[str, str]] | None:
    """The photos that another recognizer answers otherwise; None when the two cannot be compared.

    A class that got another name and kept its photos is the same class.
    """
    if before is None or after is None or before.contents.model.sha256 != after.contents.model.sha256:
        return None
    name_of = {frozenset(bank.digests): name for name, bank in after.contents.support.classes.items()}
    renamed = {
        name: name_of.get(frozenset(bank.digests), name) if name not in after.classes else name
        for name, bank in before.contents.support.classes.items()
    }
    old, new = _labels(before, queries), _labels(after, queries)
    return changes(queries, [renamed.get(label, label) for label in old], new)


def changes(queries: Sequence[Query], before: Sequence[str], after: Sequence[str]) -> list[dict[str, str]]:
    both = zip(queries, before, after, strict=True)
    return [{**query.to_json(), "from": old, "to": new} for query, old, new in both if old != new]


def _labels(recognizer: Recognizer, queries: Sequence[Query]) -> list[str]:
    some = (queries[start : start + BATCH] for start in range(0, len(queries), BATCH))
    return [label for each in some for label in recognizer.decide(batch_of(each).features).label]


def _seen_json(recognizer: Recognizer) -> dict[str, Any]:
    prepared = recognizer.embedder.preprocess
    return {"pixels": prepared.size, "share": prepared.size / (prepared.resize or prepared.size)}


def _outlook_json(recognizer: Recognizer) -> dict[str, Any]:
    outlook = recognizer.outlook()
    return {**outlook.to_json(), "lines": outlook.lines()}


def _photo_json(photo: Photo) -> dict[str, str]:
    return {"id": photo.digest, "name": photo.name, "thumbnail": f"/photos/{photo.digest}/thumbnail"}


def batch_of(queries: Sequence[Query]) -> Batch:
    return Batch(tuple(each.picture for each in queries), join([each.views for each in queries]))
