"""What the recognizer costs on top of looking at pictures, and what it takes to add a class to a large one.

    python benchmarks/recognizer.py [--model photos-fast] [--photos 500] [--classes 200] [--data DIR]

Goals: predicting 500 photos takes at most 1.25 times decoding them and one pass of the backbone over them; adding a
class to a recognizer of 200 classes, load and save not counted, takes under a second plus its own photos.  The plain
pass runs in two halves, one before and one after the prediction, so that other load on the machine meets both alike.
The photos are those of ``caltech-photos`` below GLOCAL_DATA, cut into classes of five; without them, noise as PNG.
Of the large recognizer ten classes are real and the others noisy copies of their views: their time is the same.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from glocal.recognizer import Recognizer
from glocal.recognizer.encoder import BATCH
from glocal.recognizer.enrolled import Enrolled
from glocal.recognizer.features import Views
from glocal.recognizer.photos.images import decode, fit
from glocal.recognizer.support import Bank, Support

SHOTS = 5


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def plain_pass(recognizer: Recognizer, paths: list[Path]) -> None:
    """Decode in order, encode in batches: what one would write without glocal."""
    backbone, preprocess = recognizer.contents.model.model.backbone, recognizer.encoder.preprocess
    with torch.inference_mode():
        for start in range(0, len(paths), BATCH):
            pixels = np.stack([fit(decode(path), preprocess) for path in paths[start : start + BATCH]])
            images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
            backbone(preprocess.normalize(images.contiguous(memory_format=torch.channels_last)))


def photos(data: Path | None, scratch: Path, n: int) -> list[Path]:
    if data is not None and data.is_dir():
        found = sorted(data.glob("*/*.jpg"))
        return found[:n] if n <= len(found) else found
    rng = np.random.default_rng(0)
    paths = [scratch / f"{i}.png" for i in range(n)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (240, 300, 3), dtype=np.uint8)).save(path)
    return paths


def groups(paths: list[Path]) -> Iterator[list[Path]]:
    for start in range(0, len(paths) - SHOTS + 1, SHOTS):
        yield paths[start : start + SHOTS]


def enlarged(few: Recognizer, n: int) -> Recognizer:
    """``n`` classes, each with the views of one of ``few``, moved a little."""
    rng = np.random.default_rng(0)
    banks = list(few.contents.support.classes.values())
    support = Support({f"class {i}": _moved(banks[i % len(banks)], i, rng) for i in range(n)})
    enrolled = Enrolled(few.contents.model, support)
    return Recognizer(enrolled.settled(few.contents, changed=set()), few.encoder, enrolled)


def _moved(bank: Bank, i: int, rng: np.random.Generator) -> Bank:
    photos = tuple(replace(photo, digest=f"{i} {photo.digest}") for photo in bank.photos)
    vec, local = bank.views.vec, bank.views.local
    noise = rng.standard_normal(vec.shape).astype(np.float32)
    views = Views(vec + vec.std() * noise, None if local is None else np.roll(local, i, axis=1))
    return Bank(photos, views, np.roll(bank.signature, i, axis=1))


def main() -> None:
    home = os.environ.get("GLOCAL_DATA")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="photos-fast")
    parser.add_argument("--photos", type=int, default=500)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--data", type=Path, default=Path(home) / "caltech-photos" if home else None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = photos(asked.data, Path(folder), asked.photos + 11 * SHOTS)
        *classes, extra = list(groups(paths))[:11]
        few = Recognizer.enroll({f"{i}": some for i, some in enumerate(classes)}, model=asked.model, device="cpu")
        query = paths[-asked.photos :]
        plain_pass(few, query[:BATCH])  # warm-up: the first pass chooses kernels
        before = seconds(lambda: plain_pass(few, query[: len(query) // 2]))
        ours = seconds(lambda: few.predict(query))
        after = seconds(lambda: plain_pass(few, query[len(query) // 2 :]))
        plain = before + after
        print(f"{asked.model}, {len(query)} photos, 10 classes, {torch.get_num_threads()} threads")
        print(f"decode and one pass of the backbone {plain:8.2f} s")
        print(f"predict                             {ours:8.2f} s   {ours / plain:.2f} times (goal <= 1.25)")

        many = enlarged(few, asked.classes)
        file = Path(folder) / "many.glocal"
        save = seconds(lambda: many.save(file))
        look = seconds(lambda: many.encoder.embed(extra))
        whole = seconds(lambda: many.add_class("extra", extra))
        load = seconds(lambda: Recognizer.load(file, device="cpu"))
        print(f"{asked.classes} classes of {SHOTS} photos, {file.stat().st_size / 2**20:.1f} MiB")
        print(f"add a class of {SHOTS} photos {whole:22.2f} s   {whole - look:.2f} s beside them (goal < 1)")
        print(f"load {load:.2f} s, save {save:.2f} s")


if __name__ == "__main__":
    main()
