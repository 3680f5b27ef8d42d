"""Embedded data: printed glyphs to learn from, handwritten digits to be tested on; no download.

Training and validation classes are characters drawn with the fonts inside matplotlib; ``glyphs`` says which.
Test classes are the digits of ``glocal.samples.embedded``.  Validation scripts do not occur in training, as the digits
do not.

A glyph is turned, sheared, bent and traced with a pen, and then counted in blocks and enlarged as the digits were.
Image i of a class is a pure function of (seed, class, i).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import PIL
from PIL import Image, features

from glocal.common.cache import cache_dir
from glocal.common.errors import DataError
from glocal.common.files import replacing
from glocal.research.data.benchmarks import glyphs
from glocal.research.data.benchmarks.glyphs import VAL_SCRIPTS, Floats, GlyphClass, alphabet, draw, fonts
from glocal.research.data.dataset import ClassDataset
from glocal.samples import embedded as digits
from glocal.samples.embedded import SIZE, Pictures, enlarge


def embedded(split: str, *, seed: int = 0, per_class: int = 60, skip_bad: bool = False) -> ClassDataset:
    """Printed characters to learn from, handwritten digits to be tested on: 32 pixels, nothing to download.

    See ``render``.  ``skip_bad`` changes nothing: it is drawn, and no drawing is bad.
    """
    images, labels, class_names = render(split, seed=seed, per_class=per_class)
    return ClassDataset.from_arrays(images, labels, class_names, name=f"embedded/{split}")


def render(split: str, *, seed: int = 0, per_class: int = 60) -> Pictures:
    """The pictures of train, val or test.

    ``seed`` and ``per_class`` speak about glyphs only: there are as many digits as there are.  Glyphs once drawn are
    kept in the cache folder under a name made of everything that decides their pixels.
    """
    if split == "test":
        return digits.render(split)
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


def _fingerprint(seed: int, per_class: int) -> str:
    """Changes with the fonts, the libraries that draw, and the code and settings of the files that use them."""
    parts = [Path(__file__), Path(glyphs.__file__), *(font.path for font in fonts())]
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


GRID = 8  # blocks per side
SOURCE = 64  # a drawn glyph, stretched to this square, is what the hand bends


@dataclass(frozen=True)
class Hand:
    """How far handwriting strays from print: standard deviations, or (low, high) of uniform draws."""

    rotation: float = 0.12  # radians
    shear: float = 0.20
    bend: float = 0.05  # of the glyph's size, for each of the slow waves below
    width: tuple[float, float] = (0.75, 1.2)  # factor on the glyph's own width
    widest: tuple[float, float] = (0.60, 0.85)  # of the picture; digits are taller than wide
    ink: tuple[float, float] = (0.23, 0.37)  # part of the bitmap that is covered: the pen is as thick as that takes
    contrast: tuple[float, float] = (0.85, 1.0)
    noise: float = 0.02  # of full ink, on the counted blocks


HAND = Hand()
_WAVES = 5  # half and whole periods of a cosine, across and down
_BINOMIAL = tuple(math.comb(6, k) / 2**6 for k in range(7))
_FAINT = 0.02  # blurred ink below this is paper


def write(glyph: GlyphClass, n: int, *, seed: int) -> npt.NDArray[np.uint8]:
    """(n, 32, 32, 3): the glyph as ``n`` hands would write it."""
    rngs = [np.random.default_rng((seed, ord(glyph.character), i)) for i in range(n)]
    normal = np.stack([rng.standard_normal(2 + 2 * _WAVES, np.float32) for rng in rngs])
    uniform = np.stack([rng.random(5, np.float32) for rng in rngs])
    noise = np.stack([rng.standard_normal((GRID, GRID), np.float32) for rng in rngs])

    fonts = [glyph.fonts[int(u * len(glyph.fonts))] for u in uniform[:, 0]]
    printed = [_stretched(glyph.character, font) for font in fonts]
    ink = np.stack([each for each, _ in printed])  # (n, SOURCE, SOURCE)
    aspect = np.array([each for _, each in printed], np.float32) * _between(HAND.width, uniform[:, 1])

    warp = _Warp(aspect, HAND.rotation * normal[:, 0], HAND.shear * normal[:, 1], HAND.bend * normal[:, 2:])
    frame = _frame(ink, warp, _between(HAND.widest, uniform[:, 2]))
    bitmap = _sample(ink, *warp(*frame))
    drawn = _trace(_blur(bitmap), _between(HAND.ink, uniform[:, 3]))
    blocks = drawn.reshape(n, GRID, SIZE // GRID, GRID, SIZE // GRID).mean((2, 4), dtype=np.float32)
    blocks = blocks * _between(HAND.contrast, uniform[:, 4])[:, None, None] + HAND.noise * noise
    return enlarge(blocks)


@cache
def _stretched(character: str, font: int) -> tuple[Floats, float]:
    """Ink (SOURCE, SOURCE) 0..1 of the bounding box stretched to a square, and width / height before that."""
    ink = draw(character, font)
    height, width = ink.shape
    square = Image.fromarray(ink).resize((SOURCE, SOURCE), Image.Resampling.BILINEAR)
    return np.asarray(square, np.float32) / 255, width / height


@dataclass(frozen=True)
class _Warp:
    """Takes a point of the written glyph back to the printed one, both in [-1, 1] over the height; (n, ...) each."""

    aspect: Floats  # (n,) width / height of the print
    rotation: Floats
    shear: Floats
    bend: Floats  # (n, 2 * _WAVES) across, then down

    def __call__(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        cos, sin = np.cos(self.rotation)[:, None, None], np.sin(self.rotation)[:, None, None]
        x, y = cos * x - sin * y, sin * x + cos * y
        x = x + self.shear[:, None, None] * y
        cos_x, cos_y = np.cos(np.pi / 2 * (x + 1)), np.cos(np.pi / 2 * (y + 1))
        waves = (cos_x, cos_y, cos_x * cos_y, 2 * cos_x**2 - 1, 2 * cos_y**2 - 1)
        across, down = np.split(self.bend[:, :, None, None], 2, axis=1)
        bent_x = x + sum(across[:, k] * wave for k, wave in enumerate(waves))
        bent_y = y + sum(down[:, k] * wave for k, wave in enumerate(waves))
        return bent_x / self.aspect[:, None, None], bent_y


def _frame(ink: Floats, warp: _Warp, widest: Floats) -> tuple[Floats, Floats]:
    """(n, 32, 32) points x and y of the written glyph so that it fills the height and at most ``widest`` of the width.

    As with the scanned digits, a wide subject is squeezed, a narrow one keeps its proportions.
    """
    grid = np.linspace(-1, 1, SIZE, dtype=np.float32)
    wide, high = (warp.aspect[:, None] + 0.45) * grid, np.broadcast_to(1.35 * grid, (len(ink), SIZE))
    inked = _sample(ink, *warp(*_mesh(wide, high))) > 0.3
    (left, right), (top, bottom) = _extent(inked.max(axis=1), wide), _extent(inked.max(axis=2), high)
    half_height = (bottom - top) / 2
    half_width = np.maximum(half_height, (right - left) / 2 / widest)
    centre = (np.arange(SIZE, dtype=np.float32) + 0.5) / SIZE * 2 - 1
    x = ((left + right) / 2)[:, None] + half_width[:, None] * centre
    y = ((top + bottom) / 2)[:, None] + half_height[:, None] * centre
    return _mesh(x, y)


def _mesh(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Columns (n, w) and rows (n, h) -> both as (n, h, w)."""
    shape = (len(x), y.shape[1], x.shape[1])
    return np.broadcast_to(x[:, None, :], shape), np.broadcast_to(y[:, :, None], shape)


def _extent(any_ink: npt.NDArray[np.bool_], position: Floats) -> tuple[Floats, Floats]:
    """(n,) smallest and largest position (n, k) with ink."""
    low = np.where(any_ink, position, np.inf).min(1).astype(np.float32)
    high = np.where(any_ink, position, -np.inf).max(1).astype(np.float32)
    return low, high


def _sample(ink: Floats, x: Floats, y: Floats) -> Floats:
    """Bilinear values of ``ink`` (n, SOURCE, SOURCE) at points in [-1, 1]; outside there is no ink."""
    padded = np.pad(ink, ((0, 0), (1, 1), (1, 1)))
    column = np.clip((x + 1) / 2 * SOURCE + 0.5, 0, SOURCE + 0.999)
    row = np.clip((y + 1) / 2 * SOURCE + 0.5, 0, SOURCE + 0.999)
    j, i = column.astype(np.intp), row.astype(np.intp)
    across, down = column - j, row - i
    side = SOURCE + 2
    flat = padded.ravel()
    at = np.arange(len(ink))[:, None, None] * side * side + i * side + j
    upper = flat[at] * (1 - across) + flat[at + 1] * across
    lower = flat[at + side] * (1 - across) + flat[at + side + 1] * across
    return (upper * (1 - down) + lower * down).astype(np.float32)


def _blur(bitmap: Floats) -> Floats:
    """A binomial blur of (n, 32, 32): cut at a level, it rounds corners and sets the pen's width."""
    reach = len(_BINOMIAL) // 2
    for axis in (1, 2):
        padded = np.pad(bitmap, [(reach, reach) if a == axis else (0, 0) for a in range(3)])
        parts = [weight * np.take(padded, range(i, i + SIZE), axis=axis) for i, weight in enumerate(_BINOMIAL)]
        bitmap = np.sum(parts, axis=0, dtype=np.float32)
    return bitmap


def _trace(blurred: Floats, covered: Floats) -> npt.NDArray[np.bool_]:
    """Cut each picture (n, 32, 32) at the level that leaves the part ``covered`` (n,) of it as ink."""
    ordered = np.sort(blurred.reshape(len(blurred), -1), axis=1)
    level = ordered[np.arange(len(ordered)), ((1 - covered) * SIZE * SIZE).astype(np.intp)]
    return blurred > np.maximum(level, _FAINT)[:, None, None]


def _between(bounds: tuple[float, float], uniform: Floats) -> Floats:
    return bounds[0] + (bounds[1] - bounds[0]) * uniform
