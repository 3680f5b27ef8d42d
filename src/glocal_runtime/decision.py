"""Where "unknown" begins: the threshold with its promise, probabilities, and the ranges that photos usually lie in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from glocal_runtime.model import Scores
from glocal_runtime.probability import with_unknown
from glocal_runtime.score_model import ScoreModel
from glocal_runtime.threshold import LeftOut, Threshold, plain_threshold
from glocal_runtime.views import Array, ClassMaps, Labels, Views

USUAL = (0.025, 0.975)  # the share of known photos that a usual range spans

Range = tuple[float, float]


@dataclass(frozen=True)
class Promise:
    """What the threshold is to keep when it is computed."""

    max_false_unknown: float = 0.05
    per_class: bool = False


@dataclass(frozen=True)
class Decision:
    """The threshold and what it rests on."""

    threshold: Threshold
    left_out: tuple[LeftOut, ...]
    usual: dict[str, Range] = field(default_factory=dict)  # of the open score, its parts and the matching patches

    @property
    def by_hand(self) -> bool:
        return self.threshold.source == "user"

    def limits(self, nearest: Array) -> Array:
        """(Q,) the open score from which on a photo of that nearest class is unknown."""
        if self.threshold.per_class is None:
            return np.full(nearest.shape, self.threshold.value)
        return np.array(self.threshold.per_class)[nearest]


def compute_threshold(
    score_model: ScoreModel | None,
    promise: Promise,
    *,
    shots: Sequence[int],
    left: Sequence[LeftOut],
    unknown_scores: Sequence[float] = (),
    strange: Sequence[float] = (),
) -> Threshold:
    """``strange``: what the classes score as strangers to each other, from which a score model may warn."""
    compute = plain_threshold if score_model is None else partial(score_model.threshold, strange=strange)
    return compute(
        shots=shots,
        left_out=left,
        max_false_unknown=promise.max_false_unknown,
        unknown_scores=unknown_scores,
        per_class=promise.per_class,
    )


def usual_ranges(
    left: Sequence[LeftOut],
    views: Views,
    label: Labels,
    maps: ClassMaps | None,
    *,
    score_model: ScoreModel | None,
    shots: Sequence[int],
) -> dict[str, Range]:
    """By name: where photos of the enrolled classes lie; empty where nothing is known about that."""
    values: dict[str, list[float]] = {}
    for each in left:
        for name, value in {"open_score": each.score, **each.parts}.items():
            values.setdefault(name, []).append(value)
    if maps is not None and views.local is not None and left:
        rows = np.array([each.photo for each in left])
        values["patches"] = maps.match_without(views.local[rows], label[rows]).sum(axis=1).tolist()
    found = {name: _range(numbers) for name, numbers in values.items() if len(numbers) > 1}
    if score_model is not None:
        low, high = score_model.usual_range(shots)
        found["open_score"] = (float(low), float(high))
    return found


def probabilities(score_model: ScoreModel | None, compared: Scores, decision: Decision) -> Array:
    """(Q, N + 1); the last column is unknown.

    A head without a score model has none that are calibrated: then unknown gets a half at the threshold, more above it
    with the spread of the left-out photos as the unit, and the classes share the rest by the softmax of their logits.
    """
    if score_model is not None:
        return score_model.probabilities(compared.logits, compared.open_score, decision.threshold)
    limit = decision.limits(compared.logits.argmax(axis=1))
    spread = float(np.std([each.score for each in decision.left_out])) if len(decision.left_out) > 1 else 0.0
    return with_unknown(compared.logits.astype(np.float64), (compared.open_score - limit) / (spread or 1.0))


def _range(numbers: Sequence[float]) -> Range:
    low, high = np.quantile(numbers, USUAL)
    return float(low), float(high)
