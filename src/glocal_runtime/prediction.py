"""The answer about one picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Prediction:
    path: str
    label: str  # the class, or "unknown"
    is_unknown: bool
    open_score: float  # larger = more unknown
    threshold: float  # above it a picture is unknown
    probabilities: Mapping[str, float]  # of every class and of "unknown"; they add up to 1
    nearest: str  # the class it is most like, also when it is unknown
    reason: str
    warning: str = ""  # that it is (nearly) one of the support photos, of which an answer proves little

    @property
    def probability(self) -> float:
        """Of the label."""
        return self.probabilities[self.label]

    def to_json(self) -> dict[str, Any]:
        """Plain values; a threshold that calls nothing unknown is null, because JSON has no infinity."""
        finite = self.threshold if math.isfinite(self.threshold) else None
        return {**vars(self), "threshold": finite, "probabilities": dict(self.probabilities)}
