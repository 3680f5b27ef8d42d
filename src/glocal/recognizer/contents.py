"""All that a recognizer is, apart from where it computes: what its file stores."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from glocal.data.images import Pixels
from glocal.recognizer.brain import Brain
from glocal.recognizer.decision import Decision, Promise
from glocal.recognizer.left_out import LeftOut
from glocal.recognizer.support import Bank, Support
from glocal.types import Views


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


def carried_over(left: Sequence[LeftOut], old: Support, new: Support) -> list[LeftOut]:
    """Left-out scores of the classes whose photos are the same before and after, renumbered for ``new``."""
    place = {id(bank): i for i, bank in enumerate(new.classes.values())}
    banks = list(old.classes.values())
    start_old, start_new = (np.cumsum([0, *each.shots]).tolist() for each in (old, new))
    kept = []
    for each in left:
        label = place.get(id(banks[each.label]))
        if label is not None:
            photo = each.photo - start_old[each.label] + start_new[label]
            nearest = place.get(id(banks[each.nearest]), label)  # a class that is gone can mislead nobody
            kept.append(each._replace(photo=photo, label=label, nearest=nearest))
    return kept


def png(pixels: Pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()
