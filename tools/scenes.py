"""Photograph-like pictures of small parts on a table, rendered from simple models: they may be shown anywhere.

    python tools/scenes.py [--out .] [--size 256]

Writes the folders of docs/walk.md: photos/, labelled/, new/ and more/.  A part is a height above the table.  Light,
metal, table and place are drawn from the number of the picture, so the same command writes the same pictures.  They
show how glocal works, not how well.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

Array = np.ndarray[Any, np.dtype[np.float64]]
Part = Callable[[Array, Array, np.random.Generator], Array]  # places x, y in about -1..1 -> height, 0 beside the part
METALS = ((0.62, 0.64, 0.67), (0.78, 0.79, 0.80), (0.76, 0.62, 0.33), (0.42, 0.43, 0.46), (0.72, 0.45, 0.33))
TABLES = ((0.55, 0.40, 0.27), (0.78, 0.76, 0.72), (0.35, 0.37, 0.40), (0.30, 0.42, 0.38))
TAUGHT = ("nut", "washer", "gear", "screw", "coin")
FINER = 2  # pixels of the drawing per pixel of the picture, each way


def inside(distance: Array, edge: float = 0.02) -> Array:
    """1 where the distance to the outline is negative, with a soft edge."""
    return np.clip(0.5 - distance / edge, 0, 1)


def dome(distance: Array, width: float) -> Array:
    """Rounded edges: from 0 at the outline to 1 at a depth of ``width``."""
    depth = np.clip(-distance / width, 0, 1)
    return np.sqrt(1 - (1 - depth) ** 2)


def polygon(x: Array, y: Array, n: int, radius: float) -> Array:
    """Distance to a regular polygon, negative inside."""
    angle = np.mod(np.arctan2(y, x), 2 * np.pi / n) - np.pi / n
    return np.hypot(x, y) * np.cos(angle) - radius * np.cos(np.pi / n)


def nut(x: Array, y: Array, rng: np.random.Generator) -> Array:
    r = np.hypot(x, y)
    hole = rng.uniform(0.38, 0.48)
    outline = np.maximum(polygon(x, y, 6, 0.85), hole - r)
    turns = 0.05 * np.sin(40 * r) * inside(np.abs(r - hole - 0.04) - 0.05)
    return 0.45 * dome(outline, 0.12) + turns * inside(outline)


def washer(x: Array, y: Array, rng: np.random.Generator) -> Array:
    r = np.hypot(x, y)
    return 0.10 * dome(np.maximum(r - 0.85, rng.uniform(0.35, 0.5) - r), 0.05)


def gear(x: Array, y: Array, rng: np.random.Generator) -> Array:
    r, angle, teeth = np.hypot(x, y), np.arctan2(y, x), int(rng.integers(12, 20))
    rim = 0.78 + 0.10 * np.tanh(4 * np.sin(teeth * angle))
    holes = [np.hypot(x - 0.42 * np.cos(a), y - 0.42 * np.sin(a)) for a in np.arange(5) * 2 * np.pi / 5]
    outline = np.maximum.reduce([r - rim, 0.14 - r, *(0.13 - each for each in holes)])
    return (0.22 + 0.08 * inside(r - 0.25) - 0.06 * inside(np.abs(r - 0.45) - 0.2)) * dome(outline, 0.06)


def screw(x: Array, y: Array, rng: np.random.Generator) -> Array:
    length, pitch = rng.uniform(0.75, 0.95), rng.uniform(0.09, 0.12)
    thread = 0.16 + 0.035 * np.abs(np.mod((x + 0.5 * y) / pitch, 1) - 0.5)
    width = np.where(x > length - 0.25, thread * np.clip((length - x) / 0.25, 0, 1), thread)
    shaft = np.sqrt(np.clip(width**2 - y**2, 0, None)) * ((x > -0.6) & (x < length))
    head = np.clip((-0.45 - x) / 0.25, 0, 1) * (x > -0.72)
    return np.maximum(shaft, np.sqrt(np.clip((0.16 + 0.24 * head) ** 2 - y**2, 0, None)) * (x > -0.72) * (x < -0.44))


def spring(x: Array, y: Array, rng: np.random.Generator) -> Array:
    turns = rng.uniform(6, 9)
    wave = np.abs(y - 0.33 * np.sin(np.pi * turns * x)) / np.hypot(1, 0.33 * np.pi * turns * np.cos(np.pi * turns * x))
    return np.sqrt(np.clip(0.065**2 - wave**2, 0, None)) * 3 * (np.abs(x) < 0.9)


def coin(x: Array, y: Array, rng: np.random.Generator) -> Array:
    r, angle = np.hypot(x, y), np.arctan2(y, x)
    rim, dots = 0.05 * inside(np.abs(r - 0.80) - 0.03), 0.02 * np.sin(48 * angle) * inside(np.abs(r - 0.7) - 0.02)
    tall = rng.uniform(0.2, 0.5, 3)
    bars = [inside(np.maximum(np.abs(x - a) - 0.05, np.abs(y) - b)) for a, b in zip((-0.3, 0, 0.3), tall, strict=True)]
    return (0.10 + rim + dots + 0.05 * np.sum(bars, axis=0)) * dome(r - 0.85, 0.04)


def key(x: Array, y: Array, rng: np.random.Generator) -> Array:
    bow = np.maximum(np.hypot(x + 0.6, y) - 0.34, 0.13 - np.hypot(x + 0.68, y))
    notch = 0.06 * np.round(2 * np.sin(x * rng.uniform(18, 26) + rng.uniform(0, 6))) / 2
    cut = np.where(y < 0, np.clip(notch + 0.03, 0, 1), 0)
    blade = np.maximum.reduce([np.abs(y - 0.02) - 0.11 + cut, -0.4 - x, x - 0.9])
    groove = 0.05 * inside(np.maximum(np.abs(y - 0.03) - 0.02, np.abs(x - 0.2) - 0.6))
    return 0.14 * dome(np.minimum(bow, blade), 0.04) - groove


def hook(x: Array, y: Array, rng: np.random.Generator) -> Array:
    ring = np.abs(np.hypot(x - 0.45, y) - 0.35) + np.where((x < 0.45) & (y < 0), 9.0, 0)
    shaft = np.where((x > -0.95) & (x < 0.45), np.abs(y - 0.35), 9.0)
    thread = 0.015 * np.sin(x * 60) * (x < -0.35)
    return 1.6 * np.sqrt(np.clip((rng.uniform(0.085, 0.1) + thread) ** 2 - np.minimum(ring, shaft) ** 2, 0, None))


PARTS: dict[str, Part] = {each.__name__: each for each in (nut, washer, gear, screw, spring, coin, key, hook)}


def cloud(size: int, grain: float, rng: np.random.Generator, stretch: float = 1) -> Array:
    """Smooth noise of mean 0 and spread 1."""
    shape = (max(2, int(size / grain)), max(2, int(size / grain / stretch)))
    small = Image.fromarray(rng.normal(size=shape).astype(np.float32)).resize((size, size), Image.Resampling.BICUBIC)
    values = np.asarray(small, dtype=np.float64)
    return (values - values.mean()) / values.std()


def scene(part: Part, size: int, rng: np.random.Generator) -> Image.Image:
    """One picture."""
    side = size * FINER
    across, down = np.meshgrid(*[np.linspace(-1, 1, side)] * 2)
    turn, scale, (left, top) = rng.uniform(0, 2 * np.pi), rng.uniform(0.58, 0.8), rng.uniform(-0.2, 0.2, 2)
    tilt = 1 + rng.uniform(-0.12, 0.12) * down  # the camera does not look straight down
    u, v = (across * tilt - left) / scale, (down * tilt - top) / scale
    x, y = u * np.cos(turn) + v * np.sin(turn), -u * np.sin(turn) + v * np.cos(turn)
    height = part(x, y, rng)
    there = inside(0.012 - height, 0.02)
    relief = height + 0.0012 * cloud(side, 3, rng) * there
    gy, gx = np.gradient(relief * scale * side / 2)
    normal = np.stack([-gx, -gy, np.ones_like(gx)]) / np.sqrt(gx**2 + gy**2 + 1)
    aim = rng.uniform(0, 2 * np.pi)
    light = np.array([0.6 * np.cos(aim), 0.6 * np.sin(aim), 0.75])
    light /= np.linalg.norm(light)
    facing = np.clip(np.tensordot(light, normal, 1), 0, None)
    mirrored = 2 * normal[2] * normal - np.array([0, 0, 1.0])[:, None, None]  # where the camera's ray goes
    lamp = np.clip(np.tensordot(light, mirrored, 1), 0, None)
    room = 0.45 + 0.3 * mirrored[1] + 0.25 * np.sin(3 * mirrored[0] + 2 * mirrored[1] + aim)
    metal = np.array(METALS[rng.integers(len(METALS))])[:, None, None]
    shine = metal * (0.25 + 0.35 * facing + 0.65 * room) + 0.8 * lamp ** rng.uniform(18, 50)
    shine = shine * (1 + 0.05 * cloud(side, 12, rng))
    table = np.array(TABLES[rng.integers(len(TABLES))])[:, None, None] * np.ones((3, side, side))
    grain = cloud(side, rng.uniform(4, 10), rng, rng.choice([1, 12]))
    table = table * (1 + 0.07 * grain + 0.08 * cloud(side, side / 3, rng))
    shift = [round(side * 0.03 * each) for each in light[:2]]
    shadow = Image.fromarray((255 * np.roll(there, (-shift[1], -shift[0]), (0, 1))).astype(np.uint8))
    shade = np.asarray(shadow.filter(ImageFilter.GaussianBlur(side * 0.02)), dtype=np.float64) / 255
    ground = table * (1 - 0.65 * shade) * (0.8 + 0.25 * light[2])
    picture = ground * (1 - there) + shine * there
    picture = picture * (1.05 - 0.18 * (across**2 + down**2)) * rng.uniform(0.85, 1.15)
    picture = np.clip(picture, 0, 1) ** 0.8
    image = Image.fromarray((255 * picture.transpose(1, 2, 0)).astype(np.uint8))
    image = image.resize((size, size), Image.Resampling.LANCZOS).filter(ImageFilter.GaussianBlur(rng.uniform(0, 0.8)))
    noise = rng.normal(0, 3, (size, size, 3))
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))


def write(folder: Path, name: str, numbers: range, *, size: int = 256, prefix: str = "") -> list[Path]:
    """Pictures of a part by their numbers, as JPEG files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{prefix}{i:02d}.jpg" for i in numbers]
    for i, path in zip(numbers, paths, strict=True):
        scene(PARTS[name], size, np.random.default_rng([*name.encode(), i])).save(path, quality=90)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description="Render the pictures of docs/walk.md.")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--size", type=int, default=256)
    given = parser.parse_args()
    for name in TAUGHT:
        write(given.out / "photos" / name, name, range(5), size=given.size)
        write(given.out / "labelled" / name, name, range(10, 18), size=given.size)
    for name in ("hook", "spring"):
        write(given.out / "labelled" / "unknown", name, range(10, 18), size=given.size, prefix=f"{name}-")
    for name in ("nut", "gear", "key", "hook"):
        write(given.out / "new", name, range(20, 22), size=given.size, prefix=f"{name}-")
    write(given.out / "more" / "key", "key", range(5), size=given.size)


if __name__ == "__main__":
    main()
