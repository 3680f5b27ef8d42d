"""npz files that claim what they do not hold; the array is called ``images``."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from hostile import PIXELS, Runs, hostile
from packings import dump


def npz(name: str, words: str, rows: int = 2) -> Any:
    """An npz given with its folder, where the labels of its rows are."""
    labels = {"labels": [0] * rows}
    return hostile(f"{name}.npz", words, beside=lambda folder: dump(folder / "labels.pkl", labels), given=".")


def _npy(array: np.ndarray, **changed: object) -> bytes:
    buffer = io.BytesIO()
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape, **changed}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + array.tobytes()


def _npz(path: Path, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("images.npy", content)


_CLAIMS: dict[str, tuple[str, dict[str, object]]] = {
    "huge-shape": ("takes .* bytes, and 384 are there", {"shape": (1 << 40, 8, 8, 3)}),
    "short-shape": ("takes 192 bytes, and 384 are there", {"shape": (1, 8, 8, 3)}),
    "negative-shape": ("negative axis", {"shape": (-2, -8, 8, 3)}),
    "objects": ("must be numbers or text", {"descr": "|O", "shape": (48,)}),
    "fields": ("must be numbers or text", {"descr": [("a", "u1")], "shape": (384,)}),
}
for _label, (_words, _claim) in _CLAIMS.items():
    npz(_label, _words)(lambda path, c=_claim: _npz(path, _npy(PIXELS, **c)))


@npz("pickle", "not an array that numpy saved")
def _(path: Path) -> None:
    _npz(path, pickle.dumps(Runs(path)))


@npz("fortran", "Fortran order")
def _(path: Path) -> None:
    np.savez(path, images=np.asfortranarray(PIXELS))


@npz("one-row", "one row of .* takes")
def _(path: Path) -> None:
    entry = zipfile.ZipInfo("images.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(entry, _npy(np.zeros(20_000, np.uint8), shape=(1, 300 << 20)))
    raw, size = path.read_bytes(), entry.file_size - 20_000 + (300 << 20)
    at = raw.index(b"PK\x01\x02")  # the directory agrees with the header, so only the rule about rows is left
    path.write_bytes(raw[: at + 20] + struct.pack("<II", size, size) + raw[at + 28 :])


@npz("bomb", "times its size")
def _(path: Path) -> None:
    np.savez_compressed(path, images=np.zeros((80 << 10, 1024), np.uint8))


@npz("checksum", "damaged, cut short")
def _(path: Path) -> None:
    _npz(path, _npy(PIXELS), zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(PIXELS.tobytes()[:50], PIXELS.tobytes()[:49] + b"!"))


@npz("deflate", "damaged, cut short", rows=156)
def _(path: Path) -> None:
    _npz(path, _npy(np.frombuffer(os.urandom(156 * 192), np.uint8).reshape(156, 8, 8, 3)))
    raw = bytearray(path.read_bytes())
    raw[10_000:10_100] = bytes(100)
    path.write_bytes(raw)


@npz("cut", "not a readable zip file")
def _(path: Path) -> None:
    np.savez(path, images=PIXELS)
    path.write_bytes(path.read_bytes()[:300])
