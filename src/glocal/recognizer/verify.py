"""Does this machine give the answers that the file was made with?"""

from __future__ import annotations

from dataclasses import dataclass

from glocal.recognizer.recognizer import Recognizer

TOLERANCE = 1e-3  # of 1 + |score|: other processors add in another order, other weights or decoders differ by far more


@dataclass(frozen=True)
class Verified:
    """One probe: what it scored when the file was written, and what it scores here."""

    expected: float
    found: float
    difference: float  # the largest over its open score and its logits, relative to 1 + |expected|

    @property
    def same(self) -> bool:
        return self.difference <= TOLERANCE


def verify(recognizer: Recognizer) -> list[Verified]:
    """Decode, encode and score the probe pictures of a recognizer again."""
    probes = recognizer.contents.probes
    scores, logits = recognizer.scores(recognizer.embed(probes.images))
    found = []
    for i, expected in enumerate(probes.open_score):
        pairs = [(expected, scores[i]), *zip(probes.logits[i], logits[i], strict=True)]
        difference = max(abs(here - there) / (1 + abs(there)) for there, here in pairs)
        found.append(Verified(expected, scores[i], difference))
    return found
