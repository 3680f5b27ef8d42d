"""One picture of the prepared form (84 px, memory-mapped array) against decoding the same picture from JPEG.

    python benchmarks/prepared.py [--images 4000]

Both are read through ClassDataset.image in one random order, in turns of a few hundred pictures, so that other load on
the machine meets both alike.  Files are warm in the page cache: what is compared is work, not the disk.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from glocal.data.dataset import ClassDataset
from glocal.data.prepared import open_prepared
from glocal.data.preparing import Sample, prepare

SIZE, CLASSES, TURN, ROUNDS = 84, 20, 250, 3
GOAL = 10  # times faster


def write_jpegs(folder: Path, images: int) -> None:
    """Smooth random pictures, about as hard to code as photographs."""
    rng = np.random.default_rng(0)
    for i in range(images):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8))
        path = folder / f"class {i % CLASSES}" / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((SIZE, SIZE), Image.Resampling.BICUBIC).save(path, quality=90)


def samples(folder: Path) -> Iterator[Sample]:
    for path in sorted(folder.glob("*/*.jpg")):
        yield Sample(path.parent.name, path.read_bytes(), str(path))


def seconds(data: ClassDataset, indices: np.ndarray) -> float:
    start = time.perf_counter()
    for i in indices:
        data.image(i)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4000)
    images = parser.parse_args().images
    with tempfile.TemporaryDirectory() as home:
        files, folder = Path(home, "files"), Path(home, "prepared")
        write_jpegs(files, images)
        begin = time.perf_counter()
        prepare(folder, {"all": lambda: samples(files)}, name="jpegs", packing="files", key="")
        preparing = time.perf_counter() - begin
        jpeg = ClassDataset.from_folder(files)
        begin = time.perf_counter()
        prepared = open_prepared(folder, "all")
        opening = time.perf_counter() - begin
        if prepared.manifest != jpeg.manifest:
            raise SystemExit("the two forms are not the same data set")
        spent = {"jpeg": 0.0, "prepared": 0.0}
        rng = np.random.default_rng(1)
        for _ in range(ROUNDS):
            order = rng.permutation(images)
            for turn in np.split(order, range(TURN, images, TURN)):
                spent["jpeg"] += seconds(jpeg, turn)
                spent["prepared"] += seconds(prepared, turn)
    per_image = {form: 1e6 * total / (ROUNDS * images) for form, total in spent.items()}
    ratio = per_image["jpeg"] / per_image["prepared"]
    print(f"preparing {1e6 * preparing / images:.0f} µs per picture, opening {1e3 * opening:.1f} ms")
    print(f"reading: JPEG {per_image['jpeg']:.0f} µs, prepared {per_image['prepared']:.1f} µs per picture")
    print(f"ratio {ratio:.0f} (goal at least {GOAL}): {'reached' if ratio >= GOAL else 'missed'}")


if __name__ == "__main__":
    main()
