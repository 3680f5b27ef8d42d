"""One split written as its images come: the images go to disk at once, 70 bytes of each stay in memory."""

from __future__ import annotations

import hashlib
import io
import os
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glocal.common.errors import DataError
from glocal.common.words import printable
from glocal.recognizer.photos.images import Pixels, UnusableImage, check_side, decode
from glocal.research.data.dataset import in_content_order
from glocal.research.data.digests import BadImage, content_digest
from glocal.research.data.prepared import IMAGES, TABLES, MappedImages, PreparedSplit

MAX_UNPACKED = 128 * 128  # pixels: larger images that come as files stay files, or photos would fill any disk


class Sample(NamedTuple):
    """An image on its way in: pixels (H, W, 3) in uint8, a file's bytes, or why there are none."""

    class_name: str
    image: NDArray[np.uint8] | bytes | UnusableImage
    where: str  # file, member or row a person would look for


def write_split(
    folder: Path,
    split: str,
    samples: Iterable[Sample],
    *,
    skip_bad: bool = False,
    progress: Callable[[int], None] | None = None,
) -> PreparedSplit:
    """Write the files of one split into ``folder``, flushed to the disk."""
    names: list[str] = []
    seen: set[str] = set()
    begin, side, digests, skipped = array("q", [0]), array("q"), bytearray(), list[BadImage]()
    with open(folder / f"{split}.{IMAGES}", "wb", buffering=1 << 20) as file:
        for sample in samples:
            seen.add(sample.class_name)
            try:
                pixels = _pixels(sample)
            except UnusableImage as bad:
                if not skip_bad:
                    raise
                skipped.append(BadImage(printable(bad.where), printable(bad.reason)))
                continue
            height, width, _ = pixels.shape
            as_file = isinstance(sample.image, bytes) and height * width > MAX_UNPACKED
            file.write(sample.image if as_file else pixels.data)  # type: ignore[arg-type]
            begin.append(file.tell())
            side.extend((0, 0) if as_file else (height, width))
            digests += content_digest(pixels)
            names.append(sample.class_name)
            if progress is not None:
                progress(len(names))
        file.flush()
        os.fsync(file.fileno())
    if not seen:
        raise DataError(f"split {split!r} has no images; give at least one per class")
    if empty := sorted(seen - set(names)):
        raise DataError(
            f"split {split!r}: class {empty[0]!r} has no usable image (the first bad one is {skipped[0].where}: "
            f"{skipped[0].reason}); add some or remove the class"
        )
    tables = {"begin": np.array(begin), "side": np.array(side).reshape(-1, 2)}
    tables["digest"] = np.frombuffer(digests, np.uint8).reshape(-1, 32)
    source = MappedImages(folder / f"{split}.{IMAGES}", tables["begin"], tables["side"])
    dataset = in_content_order(source, names, np.arange(len(names)), tables["digest"], name=split)
    tables["order"], tables["label"] = dataset.position, np.empty_like(dataset.label)
    tables["label"][dataset.position] = dataset.label
    buffer = io.BytesIO()
    np.savez(buffer, **tables)  # type: ignore[arg-type]
    with open(folder / f"{split}.{TABLES}", "wb") as file:
        file.write(buffer.getvalue())
        file.flush()
        os.fsync(file.fileno())
    return PreparedSplit(
        classes=[*dataset.classes],
        counts=dataset.counts.tolist(),
        manifest=dataset.manifest,
        bytes=begin[-1],
        tables=hashlib.sha256(buffer.getvalue()).hexdigest(),
        skipped=tuple(skipped),
    )


def _pixels(sample: Sample) -> Pixels:
    image, where = sample.image, sample.where
    if isinstance(image, UnusableImage):
        raise image
    if isinstance(image, bytes):
        return decode(image, name=where)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise UnusableImage(where, f"pixels must be uint8 (H, W, 3), got {image.dtype} {image.shape}; convert them")
    check_side(image.shape[0], image.shape[1], where)
    return np.ascontiguousarray(image)
