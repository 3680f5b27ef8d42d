"""What a threshold promises: the share of known photos that it would call unknown, for any value of it."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np

from glocal.recognizer import Recognizer

PROMISES = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.999)


def promise_curve(recognizer: Recognizer) -> list[tuple[float, float]]:
    """(value, share of known photos above it), values rising: the thresholds that promises would lead to."""
    tried = copy.copy(recognizer)
    found = [tried.set_threshold(max_false_unknown=share, per_class=False) for share in PROMISES]
    pairs = [(each.value, each.expected) for each in found if each.expected is not None and math.isfinite(each.value)]
    return sorted(dict(pairs).items())


def expected_share(curve: Sequence[tuple[float, float]], value: float) -> float | None:
    if not curve:
        return None
    values, shares = zip(*curve, strict=True)
    return float(np.interp(value, values, shares))
