"""The one place where a picture is decoded, cut and scaled.  Whatever comes in, RGB pixels or a sentence come out.

``decode`` is used from thread pools, so it leaves the process-wide state of ``warnings`` and Pillow alone.  Once, at
import, Pillow's warnings are silenced: what matters of them becomes a sentence here.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from glocal.common.errors import DataError, RecipeError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
Pixels: TypeAlias = NDArray[np.uint8]  # (H, W, 3), C-contiguous, sRGB order
MAX_PIXELS = 89_478_485  # Pillow's own limit: a 256 MB picture of 3 bytes per pixel
RESIZED_PIXELS = 1 << 24  # a picture that would have more after resizing, 48 MiB, is resized in its middle alone
MOST_SCANS = 100  # of a JPEG: each takes time for every pixel, and a few bytes are enough for one
MIN_SIDE = 8  # below this there is nothing to recognise
DECODING = 1 << 30  # bytes for pictures that are being decoded, of all threads together
_USUAL = ("1", "L", "P", "RGB")  # modes that take one copy in Pillow (4 bytes a pixel), one upright and one as pixels
LARGEST_SIDE = 1024  # that a model may want: what it takes in memory grows with the square
# fmt: off
IMAGE_SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff",
    ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".avif", ".heic", ".heif",
})
# fmt: on
# An allow-list: some of Pillow's other readers start programs (EPS) or follow pointers into other files.
_FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF")
_BAND = 1 << 20  # pixels of a picture that are in 64-bit numbers at a time
_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_JPEG = ("JPEG", "MPO")
warnings.filterwarnings("ignore", module=r"PIL\.")
_RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}

P = TypeVar("P", bound="Preprocess")


@dataclass(frozen=True)
class Preprocess:
    """How a picture becomes the tensor a backbone was trained on.  It belongs to the weights, not to the data.

    The short side is resized to ``resize`` (``size`` when None), the centre ``size`` x ``size`` is cut out,
    then x / 255 is normalised.  With ``resize`` None a picture of the right size stays as it is, pixel for pixel.
    Otherwise it too is enlarged and cut, as in the published programs (CIFAR-FS: 40, then 32).
    """

    size: int
    resize: int | None = None
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"

    def __post_init__(self) -> None:
        for name, pixels in (("size", self.size), ("resize", self.resize)):
            if type(pixels) is not int and not (name == "resize" and pixels is None):
                raise RecipeError(f"preprocess.{name} must be a whole number of pixels, got {pixels!r}")
        try:
            object.__setattr__(self, "mean", tuple(map(float, self.mean)))  # lists come in from JSON and TOML
            object.__setattr__(self, "std", tuple(map(float, self.std)))
        except (TypeError, ValueError) as error:
            raise RecipeError(f"preprocess needs 3 means and 3 stds, got {self.mean!r} and {self.std!r}") from error
        if not 1 <= self.size <= LARGEST_SIDE or (self.resize or 1) > 2 * LARGEST_SIDE:
            raise RecipeError(
                f"preprocess.size must be in 1..{LARGEST_SIDE} pixels and resize at most {2 * LARGEST_SIDE}, "
                f"got {str(self.size)[:20]} and {str(self.resize)[:20]}"
            )
        if self.resize is not None and self.resize < self.size:
            raise RecipeError(f"preprocess.resize must be at least size = {self.size}, got {self.resize}")
        finite = all(map(math.isfinite, self.mean + self.std))
        if len(self.mean) != 3 or len(self.std) != 3 or not finite or min(self.std) <= 0:
            raise RecipeError(f"preprocess needs 3 finite means and 3 positive stds, got {self.mean} and {self.std}")
        if self.interpolation not in ("bilinear", "bicubic"):
            raise RecipeError(f"preprocess.interpolation must be bilinear or bicubic, got {self.interpolation!r}")

    def to_json(self) -> dict[str, Any]:
        """What ``from_json`` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls: type[P], fields: dict[str, Any]) -> P:
        """Settings as ``to_json`` gives them; other ones are refused."""
        known = cls.__dataclass_fields__.keys()
        if not isinstance(fields, dict) or "size" not in fields or not fields.keys() <= known:
            raise RecipeError(f"preprocess must be a table with a size and of {', '.join(known)} only, got {fields!r}")
        return cls(**fields)

    def fingerprint(self) -> str:
        """A hash of all settings."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()


class Room:
    """So many bytes for all pictures that are being decoded, of all callers; the others wait for their turn."""

    def __init__(self, size: int) -> None:
        self._size, self._taken, self._changed = size, 0, threading.Condition()

    @contextmanager
    def room(self, n: int) -> Iterator[None]:
        """One that needs more than there is has it all to itself."""
        n = min(n, self._size)
        with self._changed:
            self._changed.wait_for(lambda: self._taken + n <= self._size)
            self._taken += n
        try:
            yield
        finally:
            with self._changed:
                self._taken -= n
                self._changed.notify_all()


_MEMORY = Room(DECODING)


class UnusableImage(DataError):
    """One picture that cannot be used; ``reason`` is the sentence without the name."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"cannot use picture {where}: {reason}")
        self.where = where
        self.reason = reason


def decode(source: Path | bytes, *, name: str | None = None, max_pixels: int = MAX_PIXELS) -> Pixels:
    """First frame of a picture as (H, W, 3) uint8: upright, alpha laid on white, 16 bits cut to the upper 8.

    Size is judged from the header, before any pixel is unpacked.  Pillow's own limit holds beside ``max_pixels``.
    """
    where = name or (str(source) if isinstance(source, Path) else "(unnamed)")
    with (
        _refusing(where, max_pixels),
        _stream(source, where) as stream,
        Image.open(stream, formats=_formats()) as image,
    ):
        return _pixels(image, where, max_pixels)


def opened(image: Image.Image, name: str) -> Pixels:
    """What ``decode`` gives for the file of a Pillow image, which may not have been loaded yet."""
    with _refusing(name, MAX_PIXELS):
        return _pixels(image, name, MAX_PIXELS)


def _pixels(image: Image.Image, where: str, max_pixels: int) -> Pixels:
    coefficients = 0
    if image.format in _JPEG:
        if image.info.get("progressive"):
            _check_scans(image, where)
            coefficients = 6 * image.width * image.height  # all of them are kept, at whatever size it is decoded
        _reduce(image, max_pixels)
    if image.width * image.height > max_pixels:
        raise UnusableImage(where, f"{_limit_rule(max_pixels)}, got {image.width}x{image.height}")
    check_side(image.height, image.width, where)
    with _MEMORY.room(image.width * image.height * (12 if image.mode in _USUAL else 20) + coefficients):
        image.load()
        return _upright_rgb(image)


def _reduce(image: Image.Image, max_pixels: int) -> None:
    """Have a JPEG of too many pixels decoded at a half, a quarter or an eighth of its size."""
    factor = 1
    while factor < 8 and image.width * image.height > max_pixels * factor**2:
        factor *= 2
    if factor > 1:
        image.draft(None, (image.width // factor, image.height // factor))


def _check_scans(image: Image.Image, where: str) -> None:
    file: Any = image.fp  # type: ignore[attr-defined]
    at = file.tell()
    file.seek(0)
    scans = file.read().count(b"\xff\xda")
    file.seek(at)
    if scans > MOST_SCANS:
        raise UnusableImage(
            where, f"a JPEG may have {MOST_SCANS} scans, this one has {scans:,}; save it again as JPEG or PNG"
        )


@contextmanager
def _refusing(where: str, max_pixels: int) -> Iterator[None]:
    """Whatever goes wrong with a picture becomes a sentence about it."""
    try:
        yield
    except UnusableImage:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnusableImage(where, f"{_limit_rule(max_pixels)} ({error})") from None
    except UnidentifiedImageError:
        raise UnusableImage(where, f"its content is not a picture in any format read here; {_hint(where)}") from None
    except MemoryError:
        raise UnusableImage(where, "not enough memory to decode it; make it smaller") from None
    except Exception as error:  # readers of damaged bytes fail with OSError, SyntaxError, struct.error, zlib.error, ...
        what = str(error) or type(error).__name__
        raise UnusableImage(
            where, f"damaged, truncated or of a rare kind ({what}); save it again as JPEG or PNG"
        ) from error


def is_picture(name: str) -> bool:
    """By its ending; pathlib would take seconds for the names of a data set."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def to_png(image: Image.Image, *, optimize: bool = False) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=optimize)
    return buffer.getvalue()


def fit(image: Pixels, preprocess: Preprocess) -> Pixels:
    """(H, W, 3) -> (size, size, 3): short side resized, centre cut out; what needs neither passes untouched."""
    size, height, width = preprocess.size, *image.shape[:2]
    if (height, width) == (size, size) and preprocess.resize in (None, size):
        return image
    short, target = min(height, width), preprocess.resize or size
    if short != target:
        shape = (target * width // short, target * height // short)  # PIL wants (width, height)
        if math.prod(shape) > RESIZED_PIXELS:
            return _resized_middle(image, shape, preprocess)
        image = np.array(Image.fromarray(image).resize(shape, _RESAMPLING[preprocess.interpolation]))
    top, left = round((image.shape[0] - size) / 2), round((image.shape[1] - size) / 2)
    return np.ascontiguousarray(image[top : top + size, left : left + size])


def _resized_middle(image: Pixels, shape: tuple[int, int], preprocess: Preprocess) -> Pixels:
    """Resize a long banner to ``shape`` and cut out the middle, without the memory that all of it would take.

    Only a part around the middle is resized, by the same factor as the whole.  Its pixels are those of the whole, up to
    the rounding of their places.
    """
    size, (width, height) = preprocess.size, shape
    left, top = round((width - size) / 2), round((height - size) / 2)
    across, down = image.shape[1] / width, image.shape[0] / height
    box = (left * across, top * down, (left + size) * across, (top + size) * down)
    # The filter reaches beyond the box; of what is further away not even a view is made.
    reach = 4 * max(1, math.ceil(max(across, down)))
    x, y = max(0, math.floor(box[0]) - reach), max(0, math.floor(box[1]) - reach)
    part = image[y : math.ceil(box[3]) + reach, x : math.ceil(box[2]) + reach]
    inner = (box[0] - x, box[1] - y, box[2] - x, box[3] - y)
    picture = Image.fromarray(np.ascontiguousarray(part))
    return np.array(picture.resize((size, size), _RESAMPLING[preprocess.interpolation], box=inner))


def check_side(height: int, width: int, where: str) -> None:
    """Refuse a picture too small to show anything."""
    if min(height, width) < MIN_SIDE:
        raise UnusableImage(
            where, f"each side must have at least {MIN_SIDE} pixels, got {width}x{height}; use a larger picture"
        )


class ArraySource:
    """uint8 pictures (n, H, W, 3), or grey ones (n, H, W) or (n, H, W, 1), in memory or memory-mapped."""

    def __init__(self, images: NDArray[Any]) -> None:
        grey = images.ndim == 3 or (images.ndim == 4 and images.shape[3] == 1)
        if images.dtype != np.uint8 or not (grey or (images.ndim == 4 and images.shape[3] == 3)):
            raise DataError(
                f"images must be uint8 of shape (n, H, W, 3) or (n, H, W), got {images.dtype} {images.shape}; "
                "convert with (255 * x).astype('uint8') and put channels last"
            )
        if len(images):
            check_side(images.shape[1], images.shape[2], "images[0]")
        self._images = images
        self._grey = grey

    def __len__(self) -> int:
        return len(self._images)

    def read(self, i: int) -> Pixels:
        """Pixels (H, W, 3) of picture i, the caller's own to change."""
        image = np.array(self._images[i], order="C", subok=False)
        return np.repeat(image.reshape(*image.shape[:2], 1), 3, axis=2) if self._grey else image

    def where(self, i: int) -> str:
        return f"images[{i}]"

    def stamp(self, i: int) -> str | None:
        return None


@cache
def _formats() -> tuple[str, ...]:
    with suppress(ImportError):  # an extra: Pillow itself reads no HEIC
        importlib.import_module("pillow_heif").register_heif_opener()
    Image.init()  # asking Image.open for a format whose plugin is absent would be a KeyError
    return tuple(name for name in _FORMATS if name in Image.OPEN)


@contextmanager
def _stream(source: Path | bytes, where: str) -> Iterator[BinaryIO]:
    if isinstance(source, bytes):
        opened: BinaryIO = io.BytesIO(source)
    else:
        if not source.exists():
            raise UnusableImage(where, "the file does not exist or is a link that leads nowhere; check the path")
        if not source.is_file():  # opening a named pipe would wait for ever
            raise UnusableImage(where, "this is not a regular file; name a picture file")
        try:
            opened = source.open("rb")
        except OSError as error:
            raise UnusableImage(where, f"the file cannot be opened ({error.strerror}); check its permissions") from None
    with opened:
        if not opened.read(1):
            raise UnusableImage(where, "the file is empty (0 bytes); copy it again")
        yield opened  # Pillow reads from the beginning again


def _limit_rule(max_pixels: int) -> str:
    limit = min(max_pixels, Image.MAX_IMAGE_PIXELS or max_pixels)
    return f"more than {limit:,} pixels, the limit against decompression bombs; make the picture smaller"


def _hint(where: str) -> str:
    if where.lower().endswith((".heic", ".heif")):
        return "HEIC needs pip install 'glocal[heif]', or export the photo as JPEG"
    return "save it as JPEG or PNG, or remove it"


def _upright_rgb(image: Image.Image) -> Pixels:
    """Pixels of a loaded image; its orientation is read after loading because Pillow turns TIFF files itself."""
    turn = None
    with suppress(Exception):  # a damaged EXIF block says nothing about the pixels, which are fine
        turn = _UPRIGHT.get(int(image.getexif().get(_ORIENTATION, 1)))
    rgb = _rgb(image)
    return np.array(rgb if turn is None else rgb.transpose(turn))


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "I" or image.mode.startswith("I;16"):
        image = Image.fromarray(_by_bands(image, _integer_rule))
    elif image.mode == "F":
        image = Image.fromarray(_by_bands(image, _float_rule))
    elif image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return image.convert("RGB")


Rule: TypeAlias = "Callable[[NDArray[Any]], NDArray[Any]]"


def _by_bands(image: Image.Image, rule_of: Callable[[float, float], Rule]) -> Pixels:
    """Grey of more than 8 bits to bytes, by a rule that follows from its least and its largest value.

    Some rows at a time: in 64-bit numbers, all of a large picture at once would take gigabytes.
    """
    rows = max(1, _BAND // image.width)
    boxes = [(0, y, image.width, min(y + rows, image.height)) for y in range(0, image.height, rows)]
    ends = [(band.min().item(), band.max().item()) for band in (np.asarray(image.crop(box)) for box in boxes)]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    if not all(math.isfinite(end) for pair in ends for end in pair):  # NaN is less than nothing
        raise ValueError("float picture with NaN or infinite pixels")
    rule, out = rule_of(low, high), np.empty((image.height, image.width), np.uint8)
    for box in boxes:
        out[box[1] : box[3]] = rule(np.asarray(image.crop(box)))
    return out


def _integer_rule(low: float, high: float) -> Rule:
    """16-bit grey by its upper byte; wider or signed numbers are stretched so that nothing clips."""
    if low >= 0 and high < 1 << 16:
        return lambda grey: grey.astype(np.int64) >> 8
    return _stretched(low, high)


def _float_rule(low: float, high: float) -> Rule:
    """Float grey: 0..1 is scaled, 0..255 kept, anything else stretched from its least to its largest value."""
    if low < 0 or high > 255:
        return _stretched(low, high)
    return lambda grey: np.rint(grey.astype(np.float64) * 255 if high <= 1 else grey)


def _stretched(low: float, high: float) -> Rule:
    factor = 255 / (high - low) if high > low else 0
    return lambda grey: np.rint((grey.astype(np.float64) - low) * factor)
