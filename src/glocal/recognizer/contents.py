"""All that a recognizer is, apart from where it computes: what its file stores."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from glocal.recognizer.brain import Brain
from glocal.recognizer.support import Bank, Support
from glocal.types import Views
from glocal_runtime.decision import Decision, Promise
from glocal_runtime.support import carried_over, png

__all__ = ["Contents", "Probes", "carried_over", "png"]


@dataclass(frozen=True)
class Probes:
    """A few pictures and what they scored, to prove elsewhere that the answers are the same."""

    images: tuple[bytes, ...]  # PNG
    views: Views  # of these images, so that their scores follow a change of the classes without a look at them
    open_score: tuple[float, ...] = ()
    logits: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Contents:
    brain: Brain
    support: Support
    unknown: Bank | None  # known unknowns
    promise: Promise
    decision: Decision
    probes: Probes

    @property
    def identity(self) -> str:
        """Hash of all that an answer depends on; 16 hexadecimal digits."""
        parts = [
            self.brain.sha256,
            self.brain.score,
            [(name, [photo.digest for photo in bank.photos]) for name, bank in self.support.classes.items()],
            self.decision.threshold.to_json(),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
