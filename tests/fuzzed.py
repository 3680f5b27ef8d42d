"""Small packings with a few bytes changed.  Each is refused, or gives exactly what the changed file says."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from glocal.data.dataset import ClassDataset
from packings import dump, png, tarred, write_file, zipped

PIXELS = np.random.default_rng(5).integers(0, 256, (6, 8, 8, 3), np.uint8)
LABELS = [0, 0, 1, 1, 2, 2]
MANIFEST = ClassDataset.from_arrays(PIXELS, [*map(str, LABELS)]).manifest


class Form(NamedTuple):
    write: Callable[[Path], Path]  # returns what to pass to --from
    file: str  # below that, the file to change
    manifest: Callable[[Path], str | None]  # of the changed file, when it is not refused; None when nobody can tell


def _folder(root: Path) -> Path:
    for i, (label, pixels) in enumerate(zip(LABELS, PIXELS, strict=True)):
        write_file(root / f"class{label}" / f"{i}.png", png(pixels))
    return root


def _npz(root: Path) -> Path:
    root.mkdir(parents=True)
    np.savez(root / "a.npz", images=PIXELS, labels=np.array(LABELS))
    return root


def _pickle(protocol: int) -> Callable[[Path], Path]:
    def write(root: Path) -> Path:
        dump(root / "a.pkl", {"data": PIXELS, "labels": LABELS}, protocol)
        return root

    return write


def _unpickled(path: Path) -> str | None:
    """By the standard library, which may be trusted with what the package let pass as data."""
    try:
        value = pickle.loads(path.read_bytes())
    except Exception:  # it looks at parts that carry no data, as the version of numpy's pickles
        return None
    return ClassDataset.from_arrays(value["data"], [str(int(label)) for label in value["labels"]]).manifest


FORMS = {
    **{f"pickle {protocol}": Form(_pickle(protocol), "a.pkl", _unpickled) for protocol in (0, 2, 4, 5)},
    # What follows has checksums, so a change of the pictures must not go unnoticed.
    "npz": Form(_npz, "a.npz", lambda path: MANIFEST),
    "zip": Form(lambda root: zipped(_folder(root)), "", lambda path: MANIFEST),
    "tar.gz": Form(lambda root: tarred(_folder(root), "x"), "", lambda path: MANIFEST),
    "picture": Form(_folder, "class1/2.png", lambda path: MANIFEST),
}

UNCHECKED = ("pickle 0", "pickle 4", "pickle 5")  # pixels are bytes of the file, and nothing tells a changed one


def change_bytes(path: Path, seed: int) -> None:
    """One to three bytes; every second time where the structure is, near the beginning or the end."""
    rng = np.random.default_rng(seed)
    raw = np.frombuffer(path.read_bytes(), np.uint8).copy()
    edge = min(len(raw), 150) if seed % 2 else len(raw)
    for at in rng.integers(0, edge, rng.integers(1, 4)):
        raw[at if rng.integers(2) else -1 - at] ^= rng.integers(1, 256)
    path.write_bytes(raw.tobytes())
