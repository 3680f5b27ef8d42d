"""Embedded data: printed glyphs to learn from, handwritten digits to be tested on; no download and no file of ours.

Training and validation classes are characters drawn with the fonts inside matplotlib: ``glyphs`` says which,
``handwriting`` how.  Test classes are the 1,797 digits inside scikit-learn: Alpaydin and Kaynak 1998, Optical
Recognition of Handwritten Digits.  Validation scripts do not occur in training, as the digits do not.
"""

from __future__ import annotations

import contextlib
import hashlib
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import PIL
from PIL import features

from glocal.data.benchmarks import glyphs, handwriting
from glocal.data.benchmarks.glyphs import VAL_SCRIPTS, alphabet, fonts
from glocal.data.benchmarks.handwriting import enlarge, write
from glocal.data.cache import cache_dir
from glocal.data.dataset import ClassDataset
from glocal_runtime.errors import DataError
from glocal_runtime.files import replacing


class Pictures(NamedTuple):
    """A split as arrays."""

    images: npt.NDArray[np.uint8]  # (n, 32, 32, 3)
    labels: npt.NDArray[np.int64]  # (n,)
    class_names: tuple[str, ...]


def embedded(split: str, *, seed: int = 0, per_class: int = 60, skip_bad: bool = False) -> ClassDataset:
    """The data set ``embedded``; see ``render``.  ``skip_bad`` changes nothing: it is drawn, and no drawing is bad."""
    images, labels, class_names = render(split, seed=seed, per_class=per_class)
    return ClassDataset.from_arrays(images, labels, class_names, name=f"embedded/{split}")


def render(split: str, *, seed: int = 0, per_class: int = 60) -> Pictures:
    """The pictures of train, val or test.

    ``seed`` and ``per_class`` speak about glyphs only: there are as many digits as there are.  Glyphs once drawn are
    kept in the cache folder under a name made of everything that decides their pixels.
    """
    if split == "test":
        return _digits()
    if split not in ("train", "val"):
        raise DataError(f"embedded has the splits train, val and test, got {split!r}")
    if per_class < 1:
        raise DataError(f"per_class must be at least 1 image, got {per_class}")
    kept = cache_dir() / "embedded" / f"{split}-{_fingerprint(seed, per_class)}.npz"
    pictures = _read(kept)
    if pictures is None:
        classes = [glyph for glyph in alphabet() if (glyph.script in VAL_SCRIPTS) == (split == "val")]
        images = np.concatenate([write(glyph, per_class, seed=seed) for glyph in classes])
        labels = np.repeat(np.arange(len(classes)), per_class)
        pictures = Pictures(images, labels, tuple(glyph.name for glyph in classes))
        _keep(kept, pictures)
    return pictures


def _digits() -> Pictures:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError(
            "the test pictures of the embedded data are the digits inside scikit-learn, which is not installed: "
            "pip install glocal[demo]"
        ) from error
    digits = load_digits()
    images = enlarge((digits.images / 16).astype(np.float32))
    return Pictures(images, digits.target.astype(np.int64), tuple("0123456789"))


def _fingerprint(seed: int, per_class: int) -> str:
    """Changes with the fonts, the libraries that draw, and the code and settings of the files that use them."""
    parts = [Path(__file__), Path(glyphs.__file__), Path(handwriting.__file__), *(font.path for font in fonts())]
    text = f"{seed} {per_class} {np.__version__} {PIL.__version__} {features.version('freetype2')}"
    digests = b"".join(hashlib.sha256(part.read_bytes()).digest() for part in parts)
    return hashlib.sha256(text.encode() + digests).hexdigest()[:32]


def _read(path: Path) -> Pictures | None:
    """What ``_keep`` wrote; None when there is nothing or it is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            grey, labels, names = stored["grey"], stored["labels"], stored["class_names"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return Pictures(np.repeat(grey[..., None], 3, axis=3), labels, tuple(map(str, names)))


def _keep(path: Path, pictures: Pictures) -> None:
    """No effect where nothing can be written."""
    names = np.array(pictures.class_names)
    with contextlib.suppress(OSError), replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, grey=pictures.images[..., 0], labels=pictures.labels, class_names=names)
