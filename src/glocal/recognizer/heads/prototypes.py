"""Prototypes: a class is the mean of its photos' vectors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from glocal.common.errors import RecipeError
from glocal.recognizer.encoders.session import Graph
from glocal.recognizer.features import UNKNOWN, Array, Features, Labels, class_means, unit
from glocal.recognizer.heads.head import Scores, Trial, trials

TEMPERATURE = 0.1  # of cosines, the scale that cosine classifiers start from


class PrototypeState(NamedTuple):
    proto: Array  # (N, D)


class Prototypes:
    """Logits are similarities to the class means; the open score is the distance to the nearest.

    Parameters
    ----------
    distance : str
        cosine, euclidean or sq-euclidean.
    temperature : float
        Divides the similarities.
    """

    name, min_way, takes_unknown = "prototypes", 1, False
    score_names: tuple[str, ...] = ("distance",)
    open_score = "distance"

    def __init__(self, *, distance: str = "cosine", temperature: float = TEMPERATURE) -> None:
        if distance not in SIMILARITIES:
            raise RecipeError(f"distance must be one of {', '.join(SIMILARITIES)}, got {distance!r}")
        self._similarity, self.temperature = SIMILARITIES[distance], temperature

    def enroll(self, support: Features, label: Labels) -> PrototypeState:
        known = label != UNKNOWN
        return PrototypeState(class_means(support.vec[known], label[known]))

    def compare(self, state: PrototypeState, query: Features) -> Scores:
        logits = self._similarity(query.vec, state.proto) / self.temperature
        return Scores(logits, -logits.max(axis=1), {})

    def trials(self, support: Features, asked: Features) -> Trial:
        return trials(self, support, asked)

    def record(self) -> dict[str, Any]:
        return {"kind": self.name, "open_score": self.open_score}

    def graphs(self) -> tuple[Graph, ...]:
        return ()


def cosine(query: Array, proto: Array) -> Array:
    return unit(query) @ unit(proto).T


def neg_sq_euclidean(query: Array, proto: Array) -> Array:
    """Both sides are moved by the mean prototype first: far from the origin the expansion loses digits."""
    q, p = query - proto.mean(axis=0), proto - proto.mean(axis=0)
    squared = np.square(q).sum(axis=1)[:, None] + np.square(p).sum(axis=1) - 2 * q @ p.T
    return -squared.clip(0)


def neg_euclidean(query: Array, proto: Array) -> Array:
    return -np.sqrt(-neg_sq_euclidean(query, proto))


SIMILARITIES = {"cosine": cosine, "euclidean": neg_euclidean, "sq-euclidean": neg_sq_euclidean}
