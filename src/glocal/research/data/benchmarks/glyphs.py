"""Which printed characters are classes of the embedded data, and the fonts inside matplotlib that draw them.

The characters were chosen once.  Each is in one piece, and at least two fonts have it.  None is a number, a bar, a dash
or a mark, and none is written like a digit.  Of those that look alike, such as Latin A and Greek Α, there is one.
"""

from __future__ import annotations

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


def draw(character: str, font: int) -> Mask:
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
