"""Which printed characters are classes of the embedded data, and the fonts that draw them.

The fonts are those inside matplotlib.  Four rules make the alphabet, and no file of ours lists it:

1. a character is used only where a font's character map has it, and only if it is in one piece: dots and accents are
   lost at the resolution of the pictures;
2. nothing that is a number, is on the list of look-alikes below or drawn as one of them, or close to a font's digit;
3. two characters whose drawings come close in a font are one class, named after the first: Latin A, Greek Α
   and Cyrillic А, but also C and c, since a picture does not tell how large its subject was;
4. bars, dashes and small marks are left out: a bar is a handwritten 1, and there is little in it to recognise.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from glocal.common.errors import DataError

Floats = npt.NDArray[np.floating[Any]]
Mask = npt.NDArray[np.uint8]

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

# First come, first named: of two characters with one shape the earlier script gives the class its name.
# Scripts of the validation classes are not seen in training at all, as the digits are not.
TRAIN_SCRIPTS = {
    "Latin": (0x0041, 0x024F),
    "Greek": (0x0370, 0x03FF),
    "Cyrillic": (0x0400, 0x052F),
    "phonetic": (0x0250, 0x02AF),
    "Arabic": (0x0620, 0x06D3),
    "NKo": (0x07CA, 0x07EA),
    "Canadian": (0x1401, 0x1676),
    "Lao": (0x0E81, 0x0EDD),
    "Lisu": (0xA4D0, 0xA4F7),
    "Old Italic": (0x10300, 0x1031E),
    "Latin extended": (0xA722, 0xA787),
    "Mathematics": (0x2200, 0x22FF),
    "Arrows": (0x2190, 0x21FF),
}
VAL_SCRIPTS = {
    "Armenian": (0x0531, 0x0587),
    "Georgian": (0x10A0, 0x10FF),
    "Hebrew": (0x05D0, 0x05EA),
    "Tifinagh": (0x2D30, 0x2D67),
}
MIN_FONTS = 2
SAME_SHAPE = 0.92  # correlation of two drawings in one font from which on they are one class
LIKE_A_DIGIT = 0.83  # ... from which on a character is a look-alike of that font's digit
BAR = 3.0  # drawings this many times as high as wide, or as wide as high, are bars
BLOCK = 0.7  # drawings that cover this part of their bounding box are blocks
SMALLEST = 0.3  # of the font size: what is less high is a mark

# What people write so that it reads as a digit, also where no font prints it so.  The rule on drawings finds many of
# these as well; the list is for handwriting and errs on the generous side.
LOOK_ALIKES = {
    # A ring, with or without something in it.
    "0": "OoDQΟοΘθϴσОоФфѲѳӨөѺѻҨҩƟɵØøʘՕօסםטⵔⵙⵀⴰⵁⴲⵚⵕᐤᗡߋهةەھႭႧტꓳꓷꓓꝊꝋ𐌏𐌈𐌃∅⊘⊕⊗⊙⊚⋄ԺჱӸ®↺↻⇕⇮⇯⊲",
    # A bar, with a hook, a foot, a flag or a dot.
    "1": "IiJjlıȷƖƗɨɩɪŁłƚɫɭƪʃʅΙιІіЇїЈјӀӏוןיاɾլⵏⵑⵤᑊᒍߊߣႨາເꓲꓙꞁ𐌉∣∫لߠᐟᐠ∕∖ᒢɈɉɹɻᔇ↑↓⇡⇣∮↗↙⇑⇓⇫⇬⇭⇗⇙⇧⇩⇳⇪",
    # A zigzag, or a hook on a foot.
    "2": "ZzƧƨƵƶȤȥɀʐʑƻΖζςԆշՇՁՉչʔɁɂⵇⵒᕈᕴᖊᖋᙆᙇႢຂໂໃສꓜ𐌆ʖבຊꞆᔾגנᖠᖢᕍՀႿ⋥⊰⊱",
    # Two bows open to the left; what is like E or Σ slants into it.
    "3": "ƷʒƸƹƺȜȝɜɝɞɛƐЗзЭэҘҙӠӡԄԐԑεϵξΞΣƩʓვჳჭკჰაუჴՅՑᕒᓬꓱ𐌔Ꜫꜫ∃∑∋∍϶ԅԇꜢꜣꜤꜥⵉ⊋⋺⋻⋽⋾ວპѮѯډۇ⋼Ϡ⇛",
    # A cup or a triangle on a stem.
    "4": "ЧчҶҷҸҹӋӌӴӵɥցկԿՎվՂψΨУуYyɏүҮႷႣჃϞϟⵖߤᓭᓴᔦᔨᔪᔭꓬϤߞᖧᖨᖪᔧႡჄᖬႯƴɎץყҰұႸӶӷߌцᖮᐊעצʮʯ⋎⋏↯↪",
    # A flag over a bow, and other shapes of S.
    "5": "SsƼƽƾȿЅѕҔҕՏʂɕϨϩႽნჽىیᔐᔑᔓᔕᕊᕋᖌᖍⵢꓢꜱϚ∽∾≀ϛᕐᔅᕝຽکڪگຮႠӻҪҫҀءګڰڲʕ⊊⋤⋦⋧ᖤҁʢڴᖦ",
    # A stem into a low bowl.
    "6": "bБбЬьЪъЫыЂђЋћҌҍѢѣƄƅƂƃɓƀɃϬϭϦδհնԵճձҺһhႦႪწხმძზსߕᑲᓀᓂᓄᓇໄᒃᕹբ𐌜ᖯᕻեðƋ∂ႱჂႹƓⵛⵞ↳",
    # A roof on a slanted stem.
    "7": "ךרדזᒣᒧԴՊߖꓶꓩ∇ꞀȾߔႤל↰↴",
    # Two closed bowls.
    "8": "BβßΒВвʙȢȣ&ծԾჵრფჲჯϐɷƁⴻⴱߥꓐ𐌁𐌚∞ბຍგჷჶߢᕷɚ⊛",
    # A bowl on a stem.
    "9": "qgϘϙϥϧϼƍƿɡɢɋɊɠGԳգզջϱρРрPpƤƥԶდთეჟჹႩɐaаɑɒαوفقمԚԛƣߟߝߒᑫᑭຈລຯໆꓖ𐌐𐌒ꝐꝑǷٯڡᑬᕵᑍꝖꝗꝓ𐌓ףմΡꝒҎҏƏƢǤʠꓨՋǝəӘәႳႺפߐᖕᖖꓑթქߦߧ𐌛",
}  # fmt: skip


class Font(NamedTuple):
    name: str
    path: Path
    characters: frozenset[str]  # what the file can draw and we trust it to draw


@dataclass(frozen=True)
class GlyphClass:
    """One class: a character, the script that names it, and the numbers of the fonts that have it."""

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
    found = []
    for name in FULL_FONTS + TEX_FONTS:
        path = folder / f"{name}.ttf"
        if not path.is_file():
            raise DataError(
                f"matplotlib {matplotlib.__version__} has no font file {path.name} in {folder}: reinstall it"
            )
        characters = frozenset(map(chr, FT2Font(str(path)).get_charmap()))
        found.append(Font(name, path, characters & TEX_LETTERS if name in TEX_FONTS else characters))
    return tuple(found)


@cache
def _pen(font: int) -> ImageFont.FreeTypeFont:
    # The basic layout draws one character as the font has it; shaping libraries differ between machines.
    return ImageFont.truetype(str(fonts()[font].path), PEN_SIZE, layout_engine=ImageFont.Layout.BASIC)


def draw(character: str, font: int) -> Mask:
    """The character's ink (h, w), 0..255, cut to its bounding box; nothing drawn gives (0, 0)."""
    pen = _pen(font)
    left, top, right, bottom = (int(edge) for edge in pen.getbbox(character))
    canvas = Image.new("L", (max(right - left, 1), max(bottom - top, 1)))
    ImageDraw.Draw(canvas).text((-left, -top), character, fill=255, font=pen)
    box = canvas.getbbox()
    return np.asarray(canvas.crop(box)) if box else np.zeros((0, 0), np.uint8)


def shapes(inks: Sequence[Mask]) -> Floats:
    """(n, 256) drawings with position, size, proportions and grey taken out: two correlate by their dot product.

    Proportions, because hands vary them more than scripts do.
    """
    canvas = np.zeros((len(inks), 18, 18), np.float32)
    for row, ink in enumerate(inks):
        canvas[row, 1:17, 1:17] = np.asarray(Image.fromarray(ink).resize((16, 16), Image.Resampling.BOX))
    # A 3 x 3 binomial blur: a stroke one cell to the left is still the same stroke.
    canvas = canvas[:, :-2] + 2 * canvas[:, 1:-1] + canvas[:, 2:]
    canvas = canvas[:, :, :-2] + 2 * canvas[:, :, 1:-1] + canvas[:, :, 2:]
    flat = canvas.reshape(len(inks), 256)
    flat -= flat.mean(1, keepdims=True)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6)


@cache
def alphabet() -> tuple[GlyphClass, ...]:
    """Every class the rules leave, training scripts first."""
    candidates, drawings = [], []
    for script, (first, last) in (TRAIN_SCRIPTS | VAL_SCRIPTS).items():
        for character in filter(_is_candidate, map(chr, range(first, last + 1))):
            by_font = _draw_all(character)
            inks = list(by_font.values())
            if len(inks) >= MIN_FONTS and all(map(_is_letter, inks)) and in_one_piece(inks[0]):
                candidates.append(GlyphClass(character, script, tuple(by_font)))
                drawings.append(by_font)
    digits = largest_correlation(drawings, [_draw_all(character) for character in LOOK_ALIKES]).max(1)
    look_alikes = largest_correlation(drawings, [_draw_all(each) for each in "".join(LOOK_ALIKES.values())]).max(1)
    closeness = largest_correlation(drawings, drawings)
    kept: list[int] = []
    for i in np.flatnonzero((digits < LIKE_A_DIGIT) & (look_alikes < SAME_SHAPE)):
        if closeness[i, kept].max(initial=-1.0) < SAME_SHAPE:
            kept.append(int(i))
    return tuple(candidates[i] for i in kept)


def _is_candidate(character: str) -> bool:
    return (
        unicodedata.category(character) in ("Lu", "Ll", "Lo", "Sm", "So")
        and unicodedata.numeric(character, None) is None
        and not unicodedata.decomposition(character)
        and not any(character in likes for likes in LOOK_ALIKES.values())
    )


def _draw_all(character: str) -> dict[int, Mask]:
    """The character's drawing in every font that has it."""
    return {i: draw(character, i) for i, font in enumerate(fonts()) if character in font.characters}


def _is_letter(ink: Mask) -> bool:
    """Large enough, and neither bar nor dash nor block."""
    height, width = ink.shape
    return height >= SMALLEST * PEN_SIZE and max(height, width) < BAR * min(height, width) and ink.mean() < BLOCK * 255


def in_one_piece(ink: Mask) -> bool:
    """All inked cells of a 24 x 24 grid can be reached from one of them, corners included."""
    coarse = np.asarray(Image.fromarray(ink).resize((24, 24), Image.Resampling.BOX))
    rest = set(zip(*map(np.ndarray.tolist, np.nonzero(coarse > 40)), strict=True))
    reached = [rest.pop()]
    while reached:
        y, x = reached.pop()
        near = {(y + down, x + right) for down in (-1, 0, 1) for right in (-1, 0, 1)} & rest
        rest -= near
        reached.extend(near)
    return not rest


def largest_correlation(some: Sequence[dict[int, Mask]], others: Sequence[dict[int, Mask]]) -> Floats:
    """Characters as drawings by font -> (n, m) largest correlation of two over the fonts that have both, else -1."""
    largest = np.full((len(some), len(others)), -1.0, np.float32)
    for font in range(len(fonts())):
        rows = [i for i, by_font in enumerate(some) if font in by_font]
        columns = [j for j, by_font in enumerate(others) if font in by_font]
        correlation = shapes([some[i][font] for i in rows]) @ shapes([others[j][font] for j in columns]).T
        block = np.ix_(rows, columns)
        largest[block] = np.maximum(largest[block], correlation)
    return largest
