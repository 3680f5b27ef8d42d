"""A contact sheet: a row of pictures per class with its name above, to see at a glance what a data set holds."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from glocal.common.errors import DataError
from glocal.common.files import replacing
from glocal.common.words import printable
from glocal.research.data.dataset import ClassDataset

CELL, GAP, LINE = 96, 6, 24  # pixels
MOST = 5_000  # pictures: 150 MB of pixels


def contact_sheet(
    dataset: ClassDataset, path: str | Path, *, classes: int | None = None, per_class: int = 8, seed: int = 0
) -> list[str]:
    """Draw ``classes`` classes with ``per_class`` pictures each and write them as PNG; return the names drawn.

    The seed says which; a class with fewer pictures shows all it has.  Five classes when nobody says how many.
    """
    every = len(dataset.classes)
    classes = min(5, every) if classes is None else classes
    if not 1 <= classes <= every:
        raise DataError(f"{dataset.name} has {every} classes, so 1 to that many can be shown, got {classes}")
    if per_class < 1 or classes * per_class > MOST:
        raise DataError(f"a contact sheet shows 1 to {MOST:,} pictures, got {classes} classes with {per_class} each")
    rng = np.random.default_rng(seed)
    chosen = sorted(rng.permutation(every)[:classes].tolist(), key=dataset.classes.__getitem__)
    size = (max(per_class, 4) * (CELL + GAP) + GAP, classes * (LINE + CELL + GAP))
    sheet = Image.new("RGB", size, "white")
    for top, c in zip(range(0, size[1], LINE + CELL + GAP), chosen, strict=True):
        members = dataset.members(c)
        name = printable(f"{dataset.classes[c]}  ({len(members)})")[: size[0]]  # the edge of the sheet cuts the rest
        ImageDraw.Draw(sheet).text((GAP, top + LINE // 6), name, "black", _font())
        for k, i in enumerate(np.sort(rng.permutation(members)[:per_class])):
            picture = Image.fromarray(dataset.image(i))
            crisp = max(picture.size) <= CELL  # small pictures in squares, large ones smoothed
            shown = ImageOps.pad(
                picture, (CELL, CELL), Image.Resampling.NEAREST if crisp else Image.Resampling.LANCZOS, "#eef0f3"
            )
            sheet.paste(shown, (GAP + k * (CELL + GAP), top + LINE))
    with replacing(Path(path)) as partial:
        sheet.save(partial, "PNG")
    return [dataset.classes[c] for c in chosen]


@cache
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """matplotlib's DejaVu Sans, which has Greek and Cyrillic too; without it the Latin letters inside Pillow."""
    spec = find_spec("matplotlib")
    file = Path(spec.origin).parent / "mpl-data/fonts/ttf/DejaVuSans.ttf" if spec and spec.origin else Path()
    return ImageFont.truetype(str(file), 15) if file.is_file() else ImageFont.load_default(15)
