"""A contact sheet: a row of pictures per class with its name above, to see at a glance what a data set holds."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from glocal.common.errors import DataError
from glocal.common.files import replacing
from glocal.recognizer.photos.images import Pixels
from glocal.research.data.dataset import ClassDataset

CELL, GAP, MARGIN = 96, 6, 12  # pixels
MOST = 5_000  # pictures: 150 MB of pixels
TITLE, NAME = 20, 15  # height of the letters
PAPER, MAT, INK = "#ffffff", "#eef0f3", "#1b2330"


def contact_sheet(
    dataset: ClassDataset, path: str | Path, *, classes: int | None = None, per_class: int = 8, seed: int = 0
) -> list[str]:
    """Draw ``classes`` classes with ``per_class`` pictures each and write them as PNG; return the names drawn.

    The seed says which; a class with fewer pictures shows all it has.  Five classes when nobody says how many.
    """
    classes = min(5, len(dataset.classes)) if classes is None else classes
    if not 1 <= classes <= len(dataset.classes):
        raise DataError(
            f"{dataset.name} has {len(dataset.classes)} classes, so 1 to that many can be shown, got {classes}"
        )
    if per_class < 1 or classes * per_class > MOST:
        raise DataError(f"a contact sheet shows 1 to {MOST:,} pictures, got {classes} classes with {per_class} each")
    rng = np.random.default_rng(seed)
    chosen = sorted(rng.permutation(len(dataset.classes))[:classes].tolist(), key=dataset.classes.__getitem__)
    rows = {c: np.sort(rng.permutation(dataset.members(c))[:per_class]) for c in chosen}
    title, row_height = f"{dataset.name}: {classes} of {len(dataset.classes)} classes", _line(NAME) + CELL + 2 * GAP
    across = max(map(len, rows.values()))
    width = 2 * MARGIN + max(across * (CELL + GAP) - GAP, 4 * CELL)
    sheet = Image.new("RGB", (width, 2 * MARGIN + _line(TITLE) + classes * row_height), PAPER)
    draw, room = ImageDraw.Draw(sheet), width - 2 * MARGIN
    draw.text((MARGIN, MARGIN), _shortened(title, TITLE, room), INK, _font(TITLE))
    for r, (c, members) in enumerate(rows.items()):
        top = MARGIN + _line(TITLE) + r * row_height
        name = f"{dataset.classes[c]}  ({len(dataset.members(c))})"
        draw.text((MARGIN, top), _shortened(name, NAME, room), INK, _font(NAME))
        for k, i in enumerate(members):
            sheet.paste(_cell(dataset.image(i)), (MARGIN + k * (CELL + GAP), top + _line(NAME)))
    path = Path(path)
    with replacing(path) as partial:
        sheet.save(partial, "PNG")
    return [dataset.classes[c] for c in chosen]


def _cell(pixels: Pixels) -> Image.Image:
    """The whole picture on a square: small ones in crisp squares, large ones shrunk."""
    picture = Image.fromarray(pixels)
    scale = CELL / max(picture.size)
    if scale >= 1:
        whole = int(scale)
        picture = picture.resize((picture.width * whole, picture.height * whole), Image.Resampling.NEAREST)
    else:
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    cell = Image.new("RGB", (CELL, CELL), MAT)
    cell.paste(picture, ((CELL - picture.width) // 2, (CELL - picture.height) // 2))
    return cell


def _shortened(text: str, size: int, room: int) -> str:
    """As much of a name as fits; a file name that is no UTF-8 shows a sign in the place of what cannot be read."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\n", " ")
    text = text[: room + 1]  # a letter takes a pixel at least, and measuring takes longer the longer it is
    if _font(size).getlength(text) <= room:
        return text
    while text and _font(size).getlength(f"{text}…") > room:
        text = text[:-1]
    return f"{text}…"


def _line(size: int) -> int:
    return round(1.5 * size)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """matplotlib's DejaVu Sans, which has Greek and Cyrillic too; without it the Latin letters inside Pillow."""
    spec = find_spec("matplotlib")
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
        if path.is_file():
            return ImageFont.truetype(str(path), size)
    return ImageFont.load_default(size)
