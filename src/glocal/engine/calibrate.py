"""Calibration: from a head and a support to a threshold with a promise, and to probabilities.

``left_out_scores`` of the support and the ``ScoreModel`` that the head carries in its checkpoint give the threshold,
``strange_scores`` tell whether the head knows such pictures.  ``plain_threshold`` is for heads that carry no score
model; ``fit_score_model`` gives them one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glocal.engine.left_out import left_out_scores, strange_scores
from glocal.engine.score_fit import fit_score_model, with_score_model
from glocal.engine.score_model import ScoreModel
from glocal_runtime.threshold import LeaveOneOut, Threshold, plain_threshold

__all__ = [
    "LeaveOneOut",
    "ScoreModel",
    "Threshold",
    "fit_score_model",
    "left_out_scores",
    "plain_threshold",
    "score_model_of",
    "strange_scores",
    "with_score_model",
]


def score_model_of(record: Mapping[str, Any]) -> ScoreModel | None:
    """The score model in a checkpoint's record; None for a head without one."""
    fields = record.get("score_model")
    return None if fields is None else ScoreModel.from_json(fields)
