"""Embedded data: printed glyphs to learn from, handwritten digits to be tested on; no download.

Training and validation classes are characters drawn with the fonts inside matplotlib; test classes are the digits of
``glocal.samples.embedded``.  The characters were chosen once.  Each is in one piece, and at least two fonts have it.
None is a number, a bar, a dash or a mark, and none is written like a digit.  Of those that look alike, such as Latin A
and Greek Α, there is one.

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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import PIL
from PIL import Image, ImageDraw, ImageFont, features

from glocal.common.cache import cache_dir
from glocal.common.errors import DataError
from glocal.common.files import replacing
from glocal.research.data.dataset import ClassDataset
from glocal.samples import embedded as digits
from glocal.samples.embedded import SIZE, Pictures, enlarge

Floats = npt.NDArray[np.floating[Any]]


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
    """Changes with the fonts, the libraries that draw, and this file."""
    parts = [Path(__file__), *(font.path for font in fonts())]
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


PEN_SIZE = 96  # pixels per em: a lower-case letter is still larger than the pictures

# A font is known by its place in FULL_FONTS + TEX_FONTS.
FULL_FONTS = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique",
    "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic",
    "DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique",
    "STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta",
)  # fmt: skip
# Computer Modern keeps TeX's own code table: only the letters A-Z and a-z are where Unicode has them.
TEX_FONTS = ("cmr10", "cmb10", "cmti10", "cmss10", "cmtt10", "cmmi10")
TEX_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")

# Scripts of the validation classes are not seen in training at all, as the digits are not.
TRAIN_SCRIPTS = {
    "Latin": "ACEHKMRUVWXekmnÆ×æđŊŒŦŧƆƇƊƑƔƕƛƜƝƦƫǂǶȡȴȵȸȹȺȻɄɆɇɍ",
    "Greek": "ͰͲΔμνϏϗϡϢϣϪϮϺϻ",
    "Cyrillic": "ЉЊЏДЖЛЩЮЯѠѤѦѨѪѬѰѱѸѹ҂ҐҒҖҚҠҢҤҦҬҲҼҾӃӅӇӊӍӺӼӾԀԂԈԎԒԔԖԗԘԙԞԠԢԤ",
    "phonetic": "ɮɰɱɲɳɽʁʍʎʛʞʣʤʥʦʧʨʩʪʫ",
    "Arabic": "حدرسصطعٮړڕڵڸں",
    "NKo": "ߍߏߓߘߙߚ",
    "Canadian": "ᐂᐅᐪᐰᐳᐸᒉᒊᒐᒪᓓᓕᓗᓚᓮᓯᕂᕃᕄᕆᕓᕔᕕᕗᕟᕠᕡ",
    "Lao": "ກຄຕຖນປຜຝພມຫແ",
    "Lisu": "ꓘꓞꓤꓯ",
    "Old Italic": "𐌀𐌂𐌋𐌌𐌍𐌑𐌕𐌖𐌙𐌝",
    "Latin extended": "ꜨꜩꜲꜴꜵꜶꜷꜸꜹꜼꜽꝆꝎꝤꝧꝻꞂ",
    "Mathematics": "∁∈∔∗√∝∟∠∡∢∿≆≲≺≻≾⊂⊃⊌⊏⊓⊔⊢⊣⊧⊾⊿⋆⋈⋉⋊⋋⋌⋔⋕⋲⋳⋸⋹⋿",
    "Arrows": "←→↖↘↢↣↩↫↬↭↱↲↶↷⇇⇈⇉⇊⇐⇒⇔⇖⇘⇚⇞⇟⇤⇥⇰⇴⇶⇹⇿",
}
VAL_SCRIPTS = {
    "Armenian": "ԷԸԹԻԽՃՄՆՌՐՒՔՖըխտփֆ",
    "Georgian": "ႥႫႬႮႰႲႵႻႼჀჁჅლოღჩ",
    "Hebrew": "אמשת",
    "Tifinagh": "ⴳⴼⴽⴿⵃⵄⵅⵋⵌⵎⵐⵜⵣ",
}


class Font(NamedTuple):
    name: str
    path: Path
    characters: frozenset[str]  # what the file can draw and we trust it to draw


@dataclass(frozen=True)
class GlyphClass:
    """One class: a character, its script, and the numbers of the fonts that have it."""

    character: str
    script: str
    fonts: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"U+{ord(self.character):04X} {self.character}"


@cache
def fonts() -> tuple[Font, ...]:
    """The fonts inside matplotlib that draw letters, with their real character maps."""
    try:
        import matplotlib
        from matplotlib.ft2font import FT2Font
    except ImportError as error:
        raise DataError(
            "the embedded data is drawn with the fonts inside matplotlib, which is not installed: "
            "pip install glocal[demo]"
        ) from error
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    drawn = []
    for name in FULL_FONTS + TEX_FONTS:
        path = folder / f"{name}.ttf"
        if not path.is_file():
            raise DataError(
                f"matplotlib {matplotlib.__version__} has no font file {path.name} in {folder}: reinstall it"
            )
        characters = frozenset(map(chr, FT2Font(str(path)).get_charmap()))
        drawn.append(Font(name, path, characters & TEX_LETTERS if name in TEX_FONTS else characters))
    return tuple(drawn)


@cache
def _pen(font: int) -> ImageFont.FreeTypeFont:
    # The basic layout draws one character as the font has it; shaping libraries differ between machines.
    return ImageFont.truetype(str(fonts()[font].path), PEN_SIZE, layout_engine=ImageFont.Layout.BASIC)


def draw(character: str, font: int) -> npt.NDArray[np.uint8]:
    """The character's ink (h, w), 0..255, cut to its bounding box; nothing drawn gives (0, 0)."""
    pen = _pen(font)
    left, top, right, bottom = (int(edge) for edge in pen.getbbox(character))
    canvas = Image.new("L", (max(right - left, 1), max(bottom - top, 1)))
    ImageDraw.Draw(canvas).text((-left, -top), character, fill=255, font=pen)
    box = canvas.getbbox()
    return np.asarray(canvas.crop(box)) if box else np.zeros((0, 0), np.uint8)


@cache
def alphabet() -> tuple[GlyphClass, ...]:
    """Every class, training scripts first."""
    return tuple(
        GlyphClass(character, script, tuple(i for i, font in enumerate(fonts()) if character in font.characters))
        for script, characters in (TRAIN_SCRIPTS | VAL_SCRIPTS).items()
        for character in characters
    )


GRID = 8  # blocks per side
SOURCE = 64  # a drawn glyph, stretched to this square, is what the hand bends


# How far handwriting strays from print: standard deviations, or (low, high) of uniform draws.
ROTATION = 0.12  # radians
SHEAR = 0.20
BEND = 0.05  # of the glyph's size, for each of the slow waves below
WIDTH = (0.75, 1.2)  # factor on the glyph's own width
WIDEST = (0.60, 0.85)  # of the picture; digits are taller than wide
INK = (0.23, 0.37)  # part of the bitmap that is covered: the pen is as thick as that takes
CONTRAST = (0.85, 1.0)
NOISE = 0.02  # of full ink, on the counted blocks

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
    aspect = np.array([each for _, each in printed], np.float32) * _between(WIDTH, uniform[:, 1])

    warp = _Warp(aspect, ROTATION * normal[:, 0], SHEAR * normal[:, 1], BEND * normal[:, 2:])
    frame = _frame(ink, warp, _between(WIDEST, uniform[:, 2]))
    bitmap = _sample(ink, *warp(*frame))
    drawn = _trace(_blur(bitmap), _between(INK, uniform[:, 3]))
    blocks = drawn.reshape(n, GRID, SIZE // GRID, GRID, SIZE // GRID).mean((2, 4), dtype=np.float32)
    blocks = blocks * _between(CONTRAST, uniform[:, 4])[:, None, None] + NOISE * noise
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
