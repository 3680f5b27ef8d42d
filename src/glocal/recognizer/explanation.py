"""A picture of an answer: which patches of the query match which patches of which support photo.

Patches that match have a frame and a number that is found again in the support photo; the others are dimmed.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from glocal.common.files import replacing
from glocal.common.words import counted
from glocal.recognizer.batches import Batch
from glocal.recognizer.features import Array, Features, cosines, unit
from glocal.recognizer.photos.images import UnusableImage, decode
from glocal.recognizer.photos.sources import Region
from glocal.recognizer.prediction import Prediction
from glocal.recognizer.support import Bank

if TYPE_CHECKING:
    from glocal.recognizer.recognizer import Recognizer

QUERY, PHOTO, GAP, EDGE, LINE = 384, 232, 130, 20, 18  # pixels
PHOTOS = 3  # support photos shown
MATCHES = 9  # patches joined by a line
INK, PAPER, FRAME, EMPTY = "#1a1a1a", "#ffffff", "#d9480f", "#d0d0d0"


@dataclass(frozen=True)
class Match:
    """A query patch and the support patch most like it; patches count row by row."""

    patch: int
    photo: int  # row of the bank
    partner: int
    cosine: float


def nearest_photos(features: Features, bank: Bank) -> list[int]:
    """Rows of the bank, the photo most like the query (features of one picture) first."""
    return np.argsort(-_cosine(features, bank), kind="stable").tolist()


def partners(local: Array, bank: Bank, photos: list[int], matching: Collection[int]) -> list[Match]:
    """For each matching patch of the map (D', H, W) the patch of the photos most like it; best first."""
    if bank.features.map is None:
        return []
    others = bank.features.map[photos].astype(np.float32)  # (K, D', H, W)
    every = cosines(np.broadcast_to(local.astype(np.float32), (len(others), *local.shape)), others)  # (K, P, P')
    k, p, p2 = every.shape
    row = every.transpose(1, 0, 2).reshape(p, k * p2)
    best, place = row.max(axis=1), row.argmax(axis=1)
    matches = [Match(u, photos[int(place[u]) // p2], int(place[u]) % p2, float(best[u])) for u in matching]
    return sorted(matches, key=lambda match: -match.cosine)


def explain(recognizer: Recognizer, batch: Batch, i: int, answer: Prediction) -> Image.Image:
    """The answer to the i-th readable picture of a batch as a picture; a method without patches shows photos alone."""
    features = batch.features.rows(slice(i, i + 1)).stored()
    bank = recognizer.contents.support.classes[answer.nearest]
    matching = recognizer.enrolled.matching_patches(features, answer.nearest)
    shown = nearest_photos(features, bank)[:PHOTOS]
    local = features.map
    grid = None if local is None or matching is None else tuple(local.shape[2:])
    matches = [] if grid is None or local is None else partners(local[0], bank, shown, matching or ())
    head = textwrap.wrap(answer.reason, 92)
    top = EDGE + LINE * (2 + len(head))
    width = 3 * EDGE + QUERY + GAP + PHOTO
    region = batch.readable[i].region
    whole = None if region is None else _whole(region)
    beside = QUERY if whole is None else QUERY + EDGE + whole.height
    height = top + max(beside, len(shown) * (PHOTO + 2 * LINE)) + EDGE
    canvas = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(canvas)
    bold, plain = ImageFont.load_default(16), ImageFont.load_default(13)
    draw.text((EDGE, EDGE // 2), f"{answer.label}  ({100 * answer.probability:.0f} %)", INK, bold)
    for n, line in enumerate(head, start=1):
        draw.text((EDGE, EDGE // 2 + LINE * n + 6), line, INK, plain)

    query = Image.fromarray(batch.readable[i].pixels).resize((QUERY, QUERY))
    if grid is not None:
        query = _dimmed(query, grid, {match.patch for match in matches})
    canvas.paste(query, (EDGE, top))
    if whole is not None:
        canvas.paste(whole, (EDGE, top + QUERY + EDGE))
    places = {}
    for place, row in enumerate(shown):
        places[row] = (2 * EDGE + QUERY + GAP, top + place * (PHOTO + 2 * LINE))
        canvas.paste(_small(bank.photos[row].thumbnail), places[row])
        n = sum(match.photo == row for match in matches)
        note = counted(n, "patch") if grid is not None else f"cosine {_cosine(features, bank)[row]:.2f}"
        caption = f"{answer.nearest}: {Path(bank.photos[row].name).name}"
        draw.text((places[row][0], places[row][1] + PHOTO + 2), f"{caption[:34]} ({note})", INK, plain)
    for number, match in enumerate(matches[:MATCHES], start=1):
        assert grid is not None
        start = _frame(draw, (EDGE, top), QUERY, grid, match.patch, number, plain)
        end = _frame(draw, places[match.photo], PHOTO, grid, match.partner, number, plain)
        draw.line([start, end], FRAME, 2)
    return canvas


def _whole(region: Region) -> Image.Image:
    """The picture that a region is of, with its box."""
    image = Image.fromarray(region.read())
    scale = QUERY / max(image.size)
    small = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))
    x, y, width, height = (scale * each for each in region.box)
    ImageDraw.Draw(small).rectangle([x, y, x + width - 1, y + height - 1], outline=FRAME, width=3)
    return small


def _small(thumbnail: bytes) -> Image.Image:
    """Only its header was looked at when the file was opened: one that is cut short is an empty place."""
    try:
        return Image.fromarray(decode(thumbnail)).resize((PHOTO, PHOTO))
    except UnusableImage:
        return Image.new("RGB", (PHOTO, PHOTO), EMPTY)


def write_explanation(folder: Path, number: int, answer: Prediction, image: Image.Image) -> Path:
    """Named after the picture and its place in the input: two folders may hold pictures of one name."""
    stem = re.sub(r"[^\w.-]+", "_", Path(answer.path).stem)[:60]
    path = folder / f"{number:05d}-{stem}.png"
    with replacing(path) as partial, partial.open("wb") as file:
        image.save(file, "PNG")
    return path


def _cosine(features: Features, bank: Bank) -> Array:
    """(K,) of the one picture of ``features`` with every photo."""
    return (unit(features.vec) @ unit(bank.features.vec).T)[0]


def _dimmed(image: Image.Image, grid: tuple[int, ...], keep: set[int]) -> Image.Image:
    """Patches that match nothing turn pale."""
    mask = np.full(grid[0] * grid[1], 150, dtype=np.uint8)
    mask[list(keep)] = 0
    veil = Image.fromarray(mask.reshape(grid)).resize(image.size, Image.Resampling.NEAREST)
    return Image.composite(Image.new("RGB", image.size, PAPER), image, veil)


def _frame(
    draw: ImageDraw.ImageDraw,
    corner: tuple[int, int],
    side: int,
    grid: tuple[int, ...],
    patch: int,
    number: int,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> tuple[float, float]:
    """Frame and number a patch; its centre."""
    high, wide = side / grid[0], side / grid[1]
    left, top = corner[0] + patch % grid[1] * wide, corner[1] + patch // grid[1] * high
    draw.rectangle([left + 1, top + 1, left + wide - 2, top + high - 2], outline=FRAME, width=2)
    draw.text((left + 4, top + 2), str(number), FRAME, font, stroke_width=2, stroke_fill=PAPER)
    return left + wide / 2, top + high / 2
