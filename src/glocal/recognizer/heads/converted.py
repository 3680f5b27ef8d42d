"""A trained method as two graphs: enroll and score, see ``glocal.recognizer.converted``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from glocal.recognizer.converted import STATE
from glocal.recognizer.encoders.session import Graph
from glocal.recognizer.features import UNKNOWN, Array, Features, Labels, widened
from glocal.recognizer.heads.head import PARTS, Scores, Trial, trials

QUERIES = 64  # that the graph sees at once, and ...
PIXEL_PAIRS = 2**23  # ... cosines of patches: 32 MiB


class ConvertedHead:
    """Enrolls and compares by graphs.

    Parameters
    ----------
    name : str
        Of the method.
    """

    def __init__(
        self,
        name: str,
        enroll: Graph,
        score: Graph,
        *,
        open_score: str,
        score_names: tuple[str, ...],
        min_way: int = 1,
        takes_unknown: bool = False,
    ) -> None:
        self.name, self.open_score, self.score_names = name, open_score, score_names
        self.min_way, self.takes_unknown = min_way, takes_unknown
        self._enroll, self._score = enroll, score

    def enroll(self, support: Features, label: Labels) -> dict[str, Array]:
        one_hot = one_hot_rows(label)
        names = [name for name in self._enroll.outputs if name.startswith(STATE)]
        if not names:
            raise self._enroll.damaged(f"it has no output {STATE}0")
        state = self._enroll({"label": one_hot, **_inputs(support)}, names)
        return dict(zip(names, state, strict=True)) | {"n_way": np.array(one_hot.shape[1])}

    def compare(self, state: Mapping[str, Array], query: Features) -> Scores:
        n_way, step = int(state["n_way"]), QUERIES
        if query.map is not None:
            pixels = int(np.prod(query.map.shape[2:]))
            step = max(1, min(step, PIXEL_PAIRS // max(1, n_way * pixels * pixels)))
        turns = [self._compared(state, query.rows(slice(i, i + step)), n_way) for i in range(0, len(query), step)]
        if not turns:  # graphs take one query at least
            turns = [[np.empty((0, n_way), np.float32), *[np.empty(0, np.float32)] * len(self.outputs)]]
        logits, *scores = map(np.concatenate, zip(*turns, strict=True))
        return Scores(logits, scores[0], dict(zip(self.outputs[1:], scores[1:], strict=True)))

    def _compared(self, state: Mapping[str, Array], query: Features, n_way: int) -> list[Array]:
        logits, *scores = self._score({**state, **_inputs(query)}, ["logits", *self.outputs])
        self._score.check(logits, "logits", len(query), n_way)
        for name, score in zip(self.outputs, scores, strict=True):
            self._score.check(score, name, len(query))
        return [logits, *scores]

    def trials(self, support: Features, asked: Features) -> Trial:
        return trials(self, support, asked)

    def graphs(self) -> tuple[Graph, ...]:
        return self._enroll, self._score

    def record(self) -> dict[str, Any]:
        return {
            "kind": "converted",
            "name": self.name,
            "open_score": self.open_score,
            "score_names": list(self.score_names),
            "min_way": self.min_way,
            "takes_unknown": self.takes_unknown,
            "enroll": self._enroll.sha256,
            "score": self._score.sha256,
        }

    @cached_property
    def outputs(self) -> list[str]:
        """The open score, and its parts where the method has them."""
        parts = [name for name in PARTS if name in self.score_names and name != self.open_score]
        return [self.open_score, *parts]


def one_hot_rows(label: Labels) -> Array:
    """(S,) -> (S, N) float32; the row of a photo of no class is 0."""
    rows = np.eye(int(label.max()) + 1, dtype=np.float32)[label]
    rows[label == UNKNOWN] = 0
    return rows


def _inputs(features: Features) -> dict[str, Array]:
    return {"vec": features.vec, **({} if features.map is None else {"local": widened(features.map)})}
