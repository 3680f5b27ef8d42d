"""From photos to features: decoded in parallel, encoded in batches, never more than a few batches in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from PIL import Image

from glocal.common.errors import DataError
from glocal.common.words import bad_pictures
from glocal.recognizer.encoders.encoder import Encoder
from glocal.recognizer.features import Features, join
from glocal.recognizer.photos.images import Preprocess, to_png
from glocal.recognizer.photos.sources import Image_, Picture, Source, Unreadable, as_source, made_ahead, take
from glocal.recognizer.support import CELLS, Bank, Photo, thumbnail

BATCH = 32  # pictures: a batch is a fixed stretch of the input, so that a resumed folder is cut as before
AT_ONCE = 4 * 256**2  # pixels that go through a model at once: more take more memory, and on a CPU more time
AHEAD = 2  # batches that are decoded while one is embedded
PROBES = 4

Progress = Callable[[int, int], None]  # (done, total)


@dataclass(frozen=True)
class Batch:
    """Consecutive pictures of the input; row i of ``features`` belongs to the i-th that is readable."""

    pictures: tuple[Picture | Unreadable, ...]
    features: Features

    @property
    def readable(self) -> tuple[Picture, ...]:
        return tuple(each for each in self.pictures if isinstance(each, Picture))

    def bank(self) -> Bank:
        """What is kept of the readable ones: the pixels of many photos would not fit into memory."""
        photos = tuple(Photo(each.name, each.digest, thumbnail(each.pixels)) for each in self.readable)
        signatures = np.array([each.signature for each in self.readable], np.uint8).reshape(-1, CELLS * CELLS)
        return Bank(photos, self.features.stored(), signatures)


class Embedder:
    """An encoder, and the threads that decode photos for it."""

    def __init__(self, encoder: Encoder, *, workers: int = 2) -> None:
        self.workers, self.encoder = max(1, workers), encoder

    @property
    def preprocess(self) -> Preprocess:
        return self.encoder.preprocess

    def batches(self, sources: Iterable[Source]) -> Iterator[Batch]:
        """In order; the input is read only as far as pictures are decoded ahead."""
        look = partial(take, preprocess=self.preprocess)
        for pictures in made_ahead(look, sources, BATCH, workers=self.workers, ahead=AHEAD):
            yield self.batch(pictures)

    def batch(self, pictures: Iterable[Picture | Unreadable]) -> Batch:
        pictures = tuple(pictures)
        pixels = [each.pixels for each in pictures if isinstance(each, Picture)]
        size = self.preprocess.size
        images = np.stack(pixels or [np.zeros((size, size, 3), np.uint8)])  # networks cannot take 0 pictures
        step = max(1, AT_ONCE // size**2)
        features = join([self.encoder(images[start : start + step]) for start in range(0, len(images), step)])
        return Batch(pictures, features.rows(slice(len(pixels))))

    def embed(self, images: Iterable[Image_]) -> Features:
        """Features of a few pictures, as they would be stored: one of each, so that all of them must be readable."""
        batch = self.batch(take(as_source(image), self.preprocess) for image in images)
        for i, each in enumerate(batch.pictures):
            if isinstance(each, Unreadable):
                raise DataError(f"picture {i} of those kept cannot be used: {each.error}", code="bad-picture")
        return batch.features.stored()

    def bank(
        self, sources: Sequence[Source], *, skip_bad: bool = False, progress: Progress | None = None
    ) -> tuple[Bank, dict[int, Unreadable]]:
        """The readable photos, and the others by their place; without ``skip_bad`` there are none."""
        banks: list[Bank] = []
        bad: dict[int, Unreadable] = {}
        done = 0
        for batch in self.batches(sources):
            banks.append(batch.bank())
            bad.update({done + i: each for i, each in enumerate(batch.pictures) if isinstance(each, Unreadable)})
            done += len(batch.pictures)
            if progress is not None:
                progress(done, len(sources))
        if bad and not skip_bad:
            listed = bad_pictures([(each.path, each.error) for each in bad.values()])
            raise DataError(f"{len(bad)} of {len(sources)} photos cannot be used; {listed}", code="bad-photos")
        return Bank.join(banks), bad

    def probe_images(self, sources: Sequence[Source]) -> tuple[bytes, ...]:
        """A few of the pictures as PNG, as the model sees them."""
        step = max(1, len(sources) // PROBES)
        taken = [take(source, self.preprocess) for source in sources[::step][:PROBES]]
        return tuple(to_png(Image.fromarray(each.pixels)) for each in taken if isinstance(each, Picture))
