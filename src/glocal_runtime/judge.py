"""An enrolled support: it scores views and answers batches of pictures."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from glocal_runtime.decision import Decision, Promise, compute_threshold, judge_support, probabilities, usual_ranges
from glocal_runtime.eye import Batch, Unreadable
from glocal_runtime.left_out import Head, LeftOut, strange_scores
from glocal_runtime.naming import UNKNOWN_NAME
from glocal_runtime.patches import class_maps
from glocal_runtime.prediction import Prediction
from glocal_runtime.reason import Evidence, reason
from glocal_runtime.score_model import ScoreModel
from glocal_runtime.support import Classes
from glocal_runtime.threshold import Threshold
from glocal_runtime.twins import NEAR, correlation, stacked
from glocal_runtime.views import Array, Views

C = TypeVar("C", bound=Any)  # contents of a recognizer: support, unknown, promise, decision and probes


class Judge:
    """``plain`` turns views, of whatever kind the support keeps, into arrays."""

    def __init__(self, head: Head, support: Any, *, score_model: ScoreModel | None) -> None:
        self.support: Classes[Any] = support
        self._head, self._score_model = head, score_model
        self._label = support.class_of
        self._views = self.plain(support.views()).full()
        self._state = head.enroll(self._views, self._label)
        self._maps = class_maps(self._views, self._label)

    @staticmethod
    def plain(views: Any) -> Views:
        found: Views = views
        return found

    def scores(self, views: Any) -> tuple[list[float], list[list[float]]]:
        """Open scores (Q,) and logits (Q, N)."""
        compared = self._head.compare(self._state, self.plain(views).full())
        return compared.open_score.tolist(), compared.logits.tolist()

    def settled(self, contents: C, *, changed: Collection[int] | None, before: Sequence[LeftOut] = ()) -> C:
        """``contents`` with this support, and with all that follows from it: left-out scores, threshold, probes.

        ``changed`` are the classes with new photos (None: all), ``before`` the left-out scores of the others.
        A threshold set by hand stays.
        """
        left = judge_support(self._head, self._views, self._label, before=before, changed=changed)
        usual = usual_ranges(
            left, self._views, self._label, self._maps, score_model=self._score_model, shots=self.support.shots
        )
        contents = replace(contents, support=self.support)
        kept = contents.decision
        threshold = kept.threshold if kept.by_hand else self.threshold(contents, contents.promise, left)
        open_score, logits = self.scores(contents.probes.views)
        return replace(
            contents,
            decision=Decision(threshold, tuple(left), usual),
            probes=replace(contents.probes, open_score=tuple(open_score), logits=tuple(map(tuple, logits))),
        )

    def threshold(self, contents: Any, promise: Promise, left: Sequence[LeftOut]) -> Threshold:
        aside = contents.unknown
        return compute_threshold(
            self._score_model,
            promise,
            shots=self.support.shots,
            left=left,
            unknown_scores=() if aside is None else self.scores(aside.views)[0],
            strange=() if self._score_model is None else strange_scores(self._head, self._views, self._label),
        )

    def answer(self, batch: Batch[Any], decision: Decision) -> list[Prediction | Unreadable]:
        """In the order of the batch."""
        readable = iter(self._judged(batch, decision))
        return [each if isinstance(each, Unreadable) else next(readable) for each in batch.pictures]

    def _judged(self, batch: Batch[Any], decision: Decision) -> list[Prediction]:
        pictures = batch.readable
        if not pictures:
            return []
        names = (*self.support.names, UNKNOWN_NAME)
        views = self.plain(batch.views).stored().full()  # rounded as the support is
        compared = self._head.compare(self._state, views)
        best = compared.logits.argmax(axis=1)
        p = probabilities(self._score_model, compared, decision).tolist()
        limits = decision.limits(best).tolist()
        patches, twins = self._patches(views, best), self._twins(batch)
        found = []
        for i, (picture, n, score) in enumerate(
            zip(pictures, best.tolist(), compared.open_score.tolist(), strict=True)
        ):
            is_unknown = score > limits[i]
            own_parts = {name: float(values[i]) for name, values in compared.parts.items()}
            evidence = Evidence(names[n], p[i][n], is_unknown, score, limits[i], own_parts, patches[i])
            found.append(
                Prediction(
                    path=picture.name,
                    label=UNKNOWN_NAME if is_unknown else names[n],
                    is_unknown=is_unknown,
                    open_score=score,
                    threshold=limits[i],
                    probabilities=dict(zip(names, p[i], strict=True)),
                    nearest=names[n],
                    reason=reason(evidence, decision.usual),
                    warning=twins[i],
                )
            )
        return found

    def matching_patches(self, views: Any, name: str) -> set[int] | None:
        """Of one picture's patches, counted row by row, those that match the class; None without local maps."""
        local = self.plain(views).full().local
        if self._maps is None or local is None:
            return None
        match = self._maps.match(local, np.array([self.support.names.index(name)]))
        return set(np.flatnonzero(match[0]).tolist())

    def _patches(self, views: Views, best: Array) -> Sequence[tuple[int, int] | None]:
        """How many patches match the nearest class, of how many."""
        if self._maps is None or views.local is None:
            return [None] * len(views)
        return [(n, self._maps.n_patches) for n in self._maps.match(views.local, best).sum(axis=1).tolist()]

    def _twins(self, batch: Batch[Any]) -> list[str]:
        """For each picture the support photo that it (nearly) is, in words, or nothing."""
        alike = correlation(stacked([each.signature for each in batch.readable]), self.support.signature)
        told = []
        for picture, row in zip(batch.readable, alike, strict=True):
            closest = int(row.argmax())
            photo, name = self.support.photos[closest], self.support.names[int(self._label[closest])]
            same = "" if picture.digest == photo.digest else "nearly "
            told.append(
                f"this is {same}the support photo {photo.name} of {name}: its answer proves little"
                if not same or float(row[closest]) >= NEAR
                else ""
            )
        return told
