"""What a smaller graph changes: sketches or photos, and the labels that differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from glocal.common.errors import DataError
from glocal.recognizer.encoders.encoder import Encoder
from glocal.recognizer.features import join
from glocal.recognizer.heads.prototypes import Prototypes
from glocal.recognizer.photos.images import Pixels, Preprocess
from glocal.recognizer.photos.sources import Picture, sources_of, take

FEWEST, MOST = 32, 256  # photos that scale 8-bit layers
WAY, SHOT, QUERIES = 5, 3, 20
COMPARED = WAY * SHOT + QUERIES  # sketches
AT_ONCE = 4  # photos through a graph


def photos(folder: str | Path, preprocess: Preprocess) -> Pixels:
    """At most 256 of the photos below a folder, evenly spread over it."""
    sources = sources_of(folder)
    taken = [take(each, preprocess) for each in sources[:: 1 + (len(sources) - 1) // MOST]]
    images = [each.pixels for each in taken if isinstance(each, Picture)]
    if len(images) < FEWEST:
        raise too_few(folder, len(images))
    return np.stack(images)


def too_few(folder: str | Path, n: int) -> DataError:
    return DataError(f"at least {FEWEST} photos are needed, and {folder} has {n}; add some", code="too-few-photos")


def sketches(n: int, size: int) -> Pixels:
    """Colour patches of several sizes under noise: pictures that differ, without a data set."""
    rng = np.random.default_rng(0)
    pictures = []
    for i in range(n):
        patches = rng.integers(0, 256, (2 + i % 5, 2 + i % 5, 3), dtype=np.uint8)
        enlarged = np.asarray(Image.fromarray(patches).resize((size, size), Image.Resampling.BICUBIC))
        pictures.append(np.clip(enlarged + rng.normal(0, 12, enlarged.shape), 0, 255).astype(np.uint8))
    return np.stack(pictures)


def labels_that_differ(some: Encoder, other: Encoder, images: Pixels) -> tuple[int, int]:
    """Photos that get another label by the second encoder, and all that were asked.

    The first 15 are enrolled as 5 classes, the others are asked.
    """
    label = np.arange(WAY * SHOT) % WAY
    answers = []
    for encoder in (some, other):
        features = join([encoder(images[i : i + AT_ONCE]) for i in range(0, len(images), AT_ONCE)])
        head = Prototypes()
        state = head.enroll(features.rows(slice(len(label))), label)
        answers.append(head.compare(state, features.rows(slice(len(label), None))).logits.argmax(axis=1))
    return int((answers[0] != answers[1]).sum()), len(answers[0])
