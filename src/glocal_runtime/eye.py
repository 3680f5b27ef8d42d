"""From pictures to views: decoded in parallel, embedded in batches, never more than a few batches in memory."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from PIL import Image

from glocal_runtime.arrays import ArraySource
from glocal_runtime.errors import DataError
from glocal_runtime.images import Pixels, UnusableImage, decode, fit
from glocal_runtime.preprocess import Preprocess
from glocal_runtime.twins import signature

BATCH = 32  # pictures: a batch is a fixed stretch of the input, so that a resumed folder is cut as before
AHEAD = 2  # batches that are decoded while one is embedded

V = TypeVar("V")  # views, in arrays or tensors


@dataclass(frozen=True)
class Source:
    """A picture not yet opened."""

    name: str  # what a person would look for
    read: Callable[[], Pixels]  # (H, W, 3)


Image_: TypeAlias = "str | Path | bytes | Image.Image | np.ndarray[Any, Any] | Source"


@dataclass(frozen=True)
class Picture:
    """A picture as the backbone sees it."""

    name: str
    pixels: Pixels  # (size, size, 3)
    digest: str  # sha256 of these pixels
    signature: Pixels  # see twins.py


@dataclass(frozen=True)
class Unreadable:
    """A picture that cannot be used, and why."""

    path: str
    error: str


@dataclass(frozen=True)
class Batch(Generic[V]):
    """Consecutive pictures of the input; row i of ``views`` belongs to the i-th that is readable."""

    pictures: tuple[Picture | Unreadable, ...]
    views: V

    @property
    def readable(self) -> tuple[Picture, ...]:
        return tuple(each for each in self.pictures if isinstance(each, Picture))


def as_source(image: Image_, name: str = "(picture)") -> Source:
    """A path, the bytes of a picture file, a Pillow image, or uint8 pixels (H, W, 3) or (H, W)."""
    if isinstance(image, Source):
        return image
    if isinstance(image, str | Path):
        path = Path(image)
        return Source(str(image), partial(decode, path))
    if isinstance(image, bytes):
        return Source(name, partial(decode, image, name=name))
    if isinstance(image, Image.Image):
        rgb = np.array(image.convert("RGB"))
        return Source(name, lambda: rgb)
    if isinstance(image, np.ndarray):
        return Source(name, partial(ArraySource(image[None]).read, 0))
    raise DataError(f"a picture must be a path, bytes, a Pillow image or a uint8 array, got {type(image).__name__}")


def take(source: Source, preprocess: Preprocess) -> Picture | Unreadable:
    """Decode and cut one picture; what is wrong with it is an answer too, because a folder must not stop at it."""
    try:
        pixels = fit(source.read(), preprocess)
    except UnusableImage as bad:
        return Unreadable(source.name, bad.reason)
    return Picture(source.name, pixels, hashlib.sha256(pixels.data).hexdigest(), signature(pixels))


class AnyEye(Generic[V]):
    """Turns pictures into views; a subclass says how."""

    preprocess: Preprocess
    workers: int  # threads that decode

    def embed(self, pixels: list[Pixels]) -> V:
        """Pictures (size, size, 3) -> views."""
        raise NotImplementedError

    def batches(self, sources: Iterable[Source]) -> Iterator[Batch[V]]:
        """In order; the input is read only as far as pictures are decoded ahead."""
        waiting: deque[list[Future[Picture | Unreadable]]] = deque()
        rest = iter(sources)
        pool = ThreadPoolExecutor(self.workers)
        try:
            for stretch in chain(iter(lambda: list(islice(rest, BATCH)), []), [[]] * AHEAD):
                if stretch:
                    waiting.append([pool.submit(take, source, self.preprocess) for source in stretch])
                if waiting and (len(waiting) > AHEAD or not stretch):
                    yield self.batch([future.result() for future in waiting.popleft()])
        finally:  # also when the caller stops half way: then nobody needs the rest decoded
            pool.shutdown(cancel_futures=True)

    def batch(self, pictures: Iterable[Picture | Unreadable]) -> Batch[V]:
        pictures = tuple(pictures)
        return Batch(pictures, self.embed([each.pixels for each in pictures if isinstance(each, Picture)]))
