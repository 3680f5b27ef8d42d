"""A support enrolled on one device: it scores views and answers batches of pictures."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch

from glocal.engine.calibrate import Threshold
from glocal.recognizer.brain import Brain
from glocal.recognizer.contents import Contents
from glocal.recognizer.decision import Decision, Promise, compute_threshold, judge_support, probabilities, usual_ranges
from glocal.recognizer.eye import Batch, Unreadable
from glocal.recognizer.left_out import PARTS, LeftOut
from glocal.recognizer.naming import UNKNOWN_NAME
from glocal.recognizer.patches import class_maps
from glocal.recognizer.prediction import Prediction
from glocal.recognizer.reason import Evidence, reason
from glocal.recognizer.support import Support, on_cpu
from glocal.recognizer.twins import NEAR, correlation, stacked
from glocal.types import Views


class Judge:
    def __init__(self, brain: Brain, support: Support, device: torch.device) -> None:
        self.brain, self.support, self.device = brain, support, device
        self._method = brain.model.method
        with torch.inference_mode():
            self._label = support.label.to(device)
            self._views = self._here(support.views())
            self._state = self._method.enroll(self._views, self._label)
            self._maps = class_maps(self._views, self._label)

    def scores(self, views: Views) -> tuple[list[float], list[list[float]]]:
        """Open scores (Q,) and logits (Q, N)."""
        with torch.inference_mode():
            out = self._method.score(self._state, self._here(views))
        return out.open_score.tolist(), out.logits.tolist()

    def settled(
        self, contents: Contents, *, changed: Collection[int] | None, before: Sequence[LeftOut] = ()
    ) -> Contents:
        """``contents`` with this support, and with all that follows from it: left-out scores, threshold, probes.

        ``changed`` are the classes with new photos (None: all), ``before`` the left-out scores of the others.
        A threshold set by hand stays.
        """
        with torch.inference_mode():
            left = judge_support(self._method, self._views, self._label, before=before, changed=changed)
            usual = usual_ranges(
                left,
                self._views,
                self._label,
                self._maps,
                score_model=self.brain.score_model,
                shots=self.support.shots,
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

    def threshold(self, contents: Contents, promise: Promise, left: Sequence[LeftOut]) -> Threshold:
        aside = contents.unknown
        return compute_threshold(
            self.brain.score_model,
            promise,
            shots=self.support.shots,
            left=left,
            unknown_scores=() if aside is None else self.scores(aside.views)[0],
        )

    def answer(self, batch: Batch, decision: Decision) -> list[Prediction | Unreadable]:
        """In the order of the batch."""
        readable = iter(self._judged(batch, decision))
        return [each if isinstance(each, Unreadable) else next(readable) for each in batch.pictures]

    def _judged(self, batch: Batch, decision: Decision) -> list[Prediction]:
        pictures = batch.readable
        if not pictures:
            return []
        names = (*self.support.names, UNKNOWN_NAME)
        with torch.inference_mode():
            views = self._here(on_cpu(batch.views))  # rounded as the support is
            comparison = self._method.compare(self._state, views)
            scores = comparison.open_score(self.brain.score)
            best = comparison.logits.argmax(dim=1)
            p = probabilities(self.brain.score_model, comparison.logits, scores, decision).tolist()
            parts = {name: comparison.own[name]().tolist() for name in PARTS if name in comparison.own}
            patches = self._patches(views, best)
            limits = decision.limits(best).tolist()
        twins = self._twins(batch)
        found = []
        for i, (picture, n, score) in enumerate(zip(pictures, best.tolist(), scores.tolist(), strict=True)):
            is_unknown = score > limits[i]
            own_parts = {name: values[i] for name, values in parts.items()}
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

    def matching_patches(self, views: Views, name: str) -> set[int] | None:
        """Of one picture's patches, counted row by row, those that match the class; None without local maps."""
        if self._maps is None or views.local is None:
            return None
        with torch.inference_mode():
            of = torch.tensor([self.support.names.index(name)], device=self.device)
            match = self._maps.match(views.local.to(self.device).float(), of)
        return set(torch.nonzero(match[0]).flatten().tolist())

    def _patches(self, views: Views, best: torch.Tensor) -> Sequence[tuple[int, int] | None]:
        """How many patches match the nearest class, of how many."""
        if self._maps is None or views.local is None:
            return [None] * len(views)
        return [(n, self._maps.n_patches) for n in self._maps.match(views.local, best).sum(dim=1).tolist()]

    def _twins(self, batch: Batch) -> list[str]:
        """For each picture the support photo that it (nearly) is, in words, or nothing."""
        alike = correlation(stacked([each.signature for each in batch.readable]), self.support.signature)
        told = []
        for picture, row in zip(batch.readable, alike, strict=True):
            closest = int(row.argmax())
            photo, name = self.support.photos[closest], self.support.names[int(self.support.label[closest])]
            same = "" if picture.digest == photo.digest else "nearly "
            told.append(
                f"this is {same}the support photo {photo.name} of {name}: its answer proves little"
                if not same or float(row[closest]) >= NEAR
                else ""
            )
        return told

    def _here(self, views: Views) -> Views:
        """On the device, in full precision."""
        local = None if views.local is None else views.local.to(self.device).float()
        return Views(views.vec.to(self.device), local)
