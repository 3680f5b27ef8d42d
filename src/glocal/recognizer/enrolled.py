"""What a recognizer is and its file stores; and a support as a model keeps it, which answers batches of pictures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from glocal.common.errors import DataError, GlocalError
from glocal.recognizer.batches import Batch
from glocal.recognizer.calibration.leave_one_out import LeftOut, Measured, measure, with_unknowns
from glocal.recognizer.calibration.probability import probabilities
from glocal.recognizer.calibration.threshold import compute_threshold
from glocal.recognizer.decision import Decision, Promise, Threshold, usual_ranges
from glocal.recognizer.features import Array, ClassMaps, Features, class_maps
from glocal.recognizer.heads.head import Scores
from glocal.recognizer.model import Model
from glocal.recognizer.photos.sources import Unreadable
from glocal.recognizer.prediction import Evidence, Prediction, reason
from glocal.recognizer.support import NEAR, UNKNOWN_NAME, Bank, Support, correlation

TOLERANCE = 1e-4  # of max(1, |score|): other processors add in another order, other weights differ by far more


@dataclass(frozen=True)
class Probes:
    """A few pictures and what they scored, to prove elsewhere that the answers are the same."""

    images: tuple[bytes, ...]  # PNG
    features: Features  # of these images, so that their scores follow a change of the classes without a look at them
    open_score: tuple[float, ...] = ()
    logits: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Contents:
    model: Model
    support: Support
    unknown: Bank | None  # known unknowns
    promise: Promise
    decision: Decision
    probes: Probes

    @property
    def identity(self) -> str:
        """Hash of all that an answer depends on; 16 hexadecimal digits."""
        parts = [
            self.model.sha256,
            self.model.head.open_score,
            [(name, [photo.digest for photo in bank.photos]) for name, bank in self.support.classes.items()],
            self.decision.threshold.to_json(),
        ]
        if self.unknown is not None and self.model.head.takes_unknown:
            parts.append([photo.digest for photo in self.unknown.photos])
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def renewed_threshold(self, measured: Measured) -> Threshold:
        """Computed from what was measured; one that was set by hand stays, but for the levels of the classes."""
        computed = compute_threshold(self.promise, self.support.shots, measured)
        by_hand = self.decision.by_hand
        return replace(self.decision.threshold, levels=computed.levels) if by_hand else computed


@dataclass(frozen=True)
class Verified:
    """One probe: what it scored when it was recorded, and what it scores here."""

    expected: float
    actual: float
    difference: float  # the largest over its open score and its logits, relative to max(1, |expected|)

    @property
    def same(self) -> bool:
        return self.difference <= TOLERANCE


def carried_over(left: Sequence[LeftOut], old: Support, new: Support) -> list[LeftOut]:
    """Left-out scores of the classes whose photos are the same before and after, renumbered for ``new``."""
    place = {bank.digests: i for i, bank in enumerate(new.classes.values())}
    digests = [bank.digests for bank in old.classes.values()]
    start_old, start_new = (np.cumsum([0, *each.shots]).tolist() for each in (old, new))
    kept = []
    for each in left:
        label = place.get(digests[each.label])
        if label is not None:
            photo = each.photo - start_old[each.label] + start_new[label]
            nearest = place.get(digests[each.nearest], label)  # a class that is gone can mislead nobody
            kept.append(each._replace(photo=photo, label=label, nearest=nearest))
    return kept


def _not_finite(what: str) -> DataError:
    return DataError(
        f"the {what} of a picture are not finite numbers, so it gets no answer; the model or its recognizer is "
        "damaged, enroll again with another model",
        code="not-finite",
    )


def relative(expected: float, actual: float) -> float:
    return abs(actual - expected) / max(1.0, abs(expected))


class Enrolled:
    """A support as the head keeps it.  Nothing is computed before it is asked for."""

    def __init__(self, model: Model, support: Support, unknown: Bank | None = None) -> None:
        self.support, self._head = support, model.head
        self._features, self._label = support.bank.features, support.class_of
        self._aside = None if unknown is None else unknown.features

    @cached_property
    def state(self) -> object:
        return self._head.enroll(*with_unknowns(self._head, self._features, self._label, self._aside))

    @cached_property
    def _maps(self) -> ClassMaps | None:
        return class_maps(self._features, self._label)

    def compare(self, features: Features) -> Scores:
        """Scores of queries; their features are rounded like those of the support."""
        if features.shape != self._features.shape:
            raise DataError(
                f"features of shape {features.shape} cannot be compared with those of the photos, "
                f"{self._features.shape}; the recognizer is damaged, or they are of another encoder",
                code="damaged-file",
            )
        try:
            with np.errstate(all="ignore"):  # what is not finite is refused below
                compared = self._head.compare(self.state, features.stored())
        except GlocalError:
            raise
        except (ValueError, ArithmeticError, LookupError, TypeError) as error:  # numbers of a made-up file
            raise DataError(
                f"the model and the photos of this recognizer do not belong together ({error}); copy it again",
                code="damaged-file",
            ) from error
        if not (np.isfinite(compared.logits).all() and np.isfinite(compared.open_score).all()):
            raise _not_finite("scores")
        return compared

    def settled(
        self, contents: Contents, *, changed: Collection[int] | None = None, before: Sequence[LeftOut] = ()
    ) -> Contents:
        """``contents`` with this support, and with all that follows from it: left-out scores, threshold, probes.

        ``changed`` are the classes with new photos (None: all), ``before`` the left-out scores of the others.
        A threshold set by hand stays.
        """
        with np.errstate(all="ignore"):  # what is not finite is refused below
            measured = measure(
                self._head, self._features, self._label, aside=self._aside, before=before, changed=changed
            )
        tried = (*measured.left_out, *measured.strange, *measured.unknown)
        if not np.isfinite([measured.own, measured.alike, *(each.score for each in tried)]).all():
            raise _not_finite("scores")
        contents = replace(contents, support=self.support)
        threshold = contents.renewed_threshold(measured)
        usual = usual_ranges(threshold, measured.left_out, self._features, self._label, self._maps)
        probed = self.compare(contents.probes.features)
        logits = tuple(map(tuple, probed.logits.tolist()))
        probes = replace(contents.probes, open_score=tuple(probed.open_score.tolist()), logits=logits)
        return replace(contents, decision=Decision(threshold, measured, usual), probes=probes)

    def answer(self, batch: Batch, decision: Decision) -> list[Prediction | Unreadable]:
        """In the order of the batch."""
        if not batch.readable:
            return [each for each in batch.pictures if isinstance(each, Unreadable)]
        names = (*self.support.names, UNKNOWN_NAME)
        compared = self.compare(batch.features)
        best = compared.logits.argmax(axis=1)
        shares = probabilities(compared, decision.threshold)
        if not np.isfinite(shares).all():
            raise _not_finite("probabilities")
        p = shares.tolist()
        scores, threshold = decision.threshold.levelled(compared.open_score, best).tolist(), decision.threshold.value
        patches, duplicates = self._patches(batch.features.stored(), best), self._duplicates(batch)
        answers: list[Prediction | Unreadable] = []
        rows = enumerate(zip(best.tolist(), scores, strict=True))
        for picture in batch.pictures:
            if isinstance(picture, Unreadable):
                answers.append(picture)
                continue
            i, (n, score) = next(rows)
            is_unknown = score > threshold
            own_parts = {name: float(values[i]) for name, values in compared.parts.items()}
            evidence = Evidence(names[n], p[i][n], is_unknown, score, threshold, own_parts, patches[i])
            answers.append(
                Prediction(
                    path=picture.name,
                    label=UNKNOWN_NAME if is_unknown else names[n],
                    is_unknown=is_unknown,
                    open_score=score,
                    threshold=threshold,
                    probabilities=dict(zip(names, p[i], strict=True)),
                    nearest=names[n],
                    reason=reason(evidence, decision.usual),
                    warning=duplicates[i],
                    box=None if picture.region is None else picture.region.box,
                )
            )
        return answers

    def matching_patches(self, features: Features, name: str) -> set[int] | None:
        """Of one picture's patches, counted row by row, those that match the class; None without local maps."""
        local = features.map
        if self._maps is None or local is None:
            return None
        match = self._maps.match(local, np.array([self.support.names.index(name)]))
        return set(np.flatnonzero(match[0]).tolist())

    def _patches(self, features: Features, best: Array) -> Sequence[tuple[int, int] | None]:
        """How many patches match the nearest class, of how many."""
        if self._maps is None or features.map is None:
            return [None] * len(features)
        match = self._maps.match(features.map, best)  # (Q, P)
        return [(n, match.shape[1]) for n in match.sum(axis=1).tolist()]

    def _duplicates(self, batch: Batch) -> list[str]:
        """For each picture the support photo that it (nearly) is, in words, or nothing."""
        alike = correlation(np.stack([each.signature for each in batch.readable]), self.support.bank.signature)
        warnings = []
        for picture, row in zip(batch.readable, alike, strict=True):
            closest = int(row.argmax())
            photo, name = self.support.photos[closest], self.support.names[int(self._label[closest])]
            same = "" if picture.digest == photo.digest else "nearly "
            warnings.append(
                f"this is {same}the support photo {photo.name} of {name}: its answer proves little"
                if not same or float(row[closest]) >= NEAR
                else ""
            )
        return warnings
