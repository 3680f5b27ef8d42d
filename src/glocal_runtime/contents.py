"""All that a recognizer is: what its file stores."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from glocal_runtime.decision import Decision, Promise
from glocal_runtime.model import Model
from glocal_runtime.support import Bank, Support
from glocal_runtime.views import Views

TOLERANCE = 1e-4  # of max(1, |score|): other processors add in another order, other weights differ by far more


@dataclass(frozen=True)
class Probes:
    """A few pictures and what they scored, to prove elsewhere that the answers are the same."""

    images: tuple[bytes, ...]  # PNG
    views: Views  # of these images, so that their scores follow a change of the classes without a look at them
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
            self.model.open_score,
            [(name, [photo.digest for photo in bank.photos]) for name, bank in self.support.classes.items()],
            self.decision.threshold.to_json(),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Verified:
    """One probe: what it scored when it was recorded, and what it scores here."""

    expected: float
    found: float
    difference: float  # the largest over its open score and its logits, relative to max(1, |expected|)

    @property
    def same(self) -> bool:
        return self.difference <= TOLERANCE


def relative(expected: float, found: float) -> float:
    return abs(found - expected) / max(1.0, abs(expected))
