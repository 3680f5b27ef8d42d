"""Are two sets of scores the same answers?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TOLERANCE = 1e-4  # of max(1, |score|)


@dataclass(frozen=True)
class Verified:
    """One probe: what it scored when it was recorded, and what it scores here."""

    expected: float
    found: float
    difference: float  # the largest over its open score and its logits, relative to max(1, |expected|)

    @property
    def same(self) -> bool:
        return self.difference <= TOLERANCE


def compared(
    open_score: Sequence[float],
    logits: Sequence[Sequence[float]],
    found_score: Sequence[float],
    found_logits: Sequence[Sequence[float]],
) -> list[Verified]:
    """Recorded against found scores, a probe each."""
    verified = []
    for there, theirs, here, ours in zip(open_score, logits, found_score, found_logits, strict=True):
        pairs = [(there, here), *zip(theirs, ours, strict=True)]
        verified.append(Verified(there, here, max(relative(a, b) for a, b in pairs)))
    return verified


def relative(expected: float, found: float) -> float:
    return abs(found - expected) / max(1.0, abs(expected))
