"""How likely each answer is, beside the others."""

from __future__ import annotations

import numpy as np

from glocal.recognizer.decision import Threshold
from glocal.recognizer.features import Array
from glocal.recognizer.heads.head import Scores

STEEP = 1.5  # by how much the log odds of "unknown" rise per spread of known photos


def probabilities(compared: Scores, threshold: Threshold) -> Array:
    """(Q, N + 1); the last column is unknown.  The largest of a row is the answer.

    "Unknown" takes part as one more class: at the threshold it is as strong as the best class, and beyond it stronger.
    So the numbers weigh the answers against each other; that they are right as often as they say was not promised.
    """
    logits = compared.logits.astype(np.float64)
    beyond = threshold.levelled(compared.open_score, logits.argmax(axis=1)) - threshold.value
    odds = STEEP * beyond / (threshold.spread or 1.0)
    every = np.concatenate([logits - logits.max(axis=1, keepdims=True), odds[:, None]], axis=1)
    every = np.clip(every, -700, 700)
    weight = np.exp(every - every.max(axis=1, keepdims=True))
    shares: Array = weight / weight.sum(axis=1, keepdims=True)
    return shares
