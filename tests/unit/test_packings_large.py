"""Packings larger than the memory they may take: recognised and prepared in a process of its own, whose peak counts."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from glocal.research.data.prepared import read_index
from packings import dump
from pictures import png

SHAPE = (84, 84, 3)
MIB = 1 << 20
NOISE = np.random.default_rng(0).integers(0, 256, (64, *SHAPE), np.uint8)
pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to tell idle memory")

MEASURE = """
import sys
from glocal.research.data.packings import recognise
from glocal.research.data.pickles import read_pickle
from glocal.research.data.prepare import prepare as write

def memory(what):  # of this program alone: the peak that getrusage gives is inherited from the parent
    return int(next(line for line in open("/proc/self/status") if line.startswith(what)).split()[1]) << 10

def prepare(source, target):
    found = recognise("tiered-imagenet", source)
    write(target, found.splits, name=found.dataset, packing=found.words, key=found.key)

idle = memory("VmRSS")
{}
print(memory("VmHWM") - idle)
"""


def random_pictures(n: int, start: int) -> np.ndarray:
    """n different pictures, counted from ``start``; all but their first pixels repeat, which costs less to make."""
    pixels = np.resize(NOISE, (n, *SHAPE))
    pixels[:, 0, 0] = pixels[:, 0, 1] = (np.arange(start, start + n)[:, None] >> [0, 8, 16]) & 255
    return pixels


def write_labels(folder: Path, split: str, n: int, classes: int) -> None:
    value = {"label_specific": np.arange(n) % classes, "label_specific_str": [f"{split} {c}" for c in range(classes)]}
    dump(folder / f"{split}_labels.pkl", value)


def write_npz(path: Path, n: int) -> None:
    """As np.savez writes it, without the array in memory."""
    block = 512
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive, archive.open("images.npy", "w", force_zip64=True) as f:
        form = {"descr": "|u1", "fortran_order": False, "shape": (n, *SHAPE)}
        np.lib.format.write_array_header_1_0(f, form)
        for start in range(0, n, block):
            f.write(random_pictures(min(block, n - start), start).tobytes())


def tiered(folder: Path, n: int) -> Path:
    """tieredImageNet's npz and labels; val and test are small."""
    for split, size, classes in (("train", n, 351), ("val", 97, 97), ("test", 160, 160)):
        write_labels(folder, split, size, classes)
        write_npz(folder / f"{split}_images.npz", size)
    return folder


def grown(work: str, *arguments: Path) -> int:
    """Bytes of memory that a process of its own takes for ``work``, at its peak."""
    command = [sys.executable, "-c", MEASURE.format(work), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(f"{int(done.stdout) / MIB:.0f} MiB above idle")
    return int(done.stdout)


@pytest.mark.parametrize(
    ("total", "limit"), [(160 * MIB, 100 * MIB), pytest.param(9_500_000_000, 1024 * MIB, marks=pytest.mark.long)]
)
def test_an_npz_larger_than_the_memory_it_takes(tmp_path: Path, total: int, limit: int) -> None:
    if shutil.disk_usage(tmp_path).free < 2 * total + (1 << 30):
        pytest.skip(f"needs {2 * total:,} bytes on the disk")
    n = total // int(np.prod(SHAPE))
    peak = grown("prepare(*sys.argv[1:])", tiered(tmp_path / "in", n), tmp_path / "out")
    index = read_index(tmp_path / "out")
    assert {split: (len(r.classes), r.total) for split, r in index.splits.items()} == {
        "train": (351, n),
        "val": (97, 97),
        "test": (160, 160),
    }
    images = np.load(tmp_path / "out" / "train.images.npy", mmap_mode="r")
    np.testing.assert_array_equal(images[512:520], random_pictures(8, 512))
    shutil.rmtree(tmp_path / "in")  # pytest keeps the folders of the last runs
    shutil.rmtree(tmp_path / "out")
    assert peak < limit


def test_pickles_larger_than_the_memory_they_take(tmp_path: Path) -> None:
    """An array in one pickle, and a list of encoded pictures; both are mapped, and their pages given back."""
    n, folder = 90 * MIB // int(np.prod(SHAPE)), tmp_path / "in"
    pictures = random_pictures(n, 0)
    dump(folder / "train.pickle", {"data": pictures, "labels": [f"train {i % 351}" for i in range(n)]}, protocol=4)
    encoded = [np.frombuffer(png(pixels), np.uint8) for pixels in pictures[:200]]
    dump(folder / "test_images_png.pkl", encoded, pickle.HIGHEST_PROTOCOL)
    write_labels(folder, "test", len(encoded), 160)
    peak = grown("prepare(*sys.argv[1:])", folder, tmp_path / "out")
    assert {split: r.total for split, r in read_index(tmp_path / "out").splits.items()} == {"train": n, "test": 200}
    shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "out")
    assert peak < 80 * MIB


def test_parsing_a_pickle_of_encoded_pictures_does_not_hold_the_file(tmp_path: Path) -> None:
    """180 MB in 9,000 pieces: what stays is the list of them, not the pages that were looked at."""
    pictures = [np.full(20_000, i % 251, np.uint8) for i in range(9000)]
    dump(tmp_path / "test_images_png.pkl", pictures, pickle.HIGHEST_PROTOCOL)
    peak = grown("assert len(read_pickle(sys.argv[1])) == 9000", tmp_path / "test_images_png.pkl")
    (tmp_path / "test_images_png.pkl").unlink()
    assert peak < 110 * MIB
