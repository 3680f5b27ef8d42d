"""npz files that claim what they do not hold; the array is called ``images``."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np

from hostile import PIXELS, Runs, hostile


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
    hostile(f"{_label}.npz", _words)(lambda path, c=_claim: _npz(path, _npy(PIXELS, **c)))


@hostile("pickle.npz", "not an array that numpy saved")
def _(path: Path) -> None:
    _npz(path, pickle.dumps(Runs(path)))


@hostile("no-images.npz", "has no array 'images', but targets")
def _(path: Path) -> None:
    np.savez(path, targets=np.arange(3))


@hostile("fortran.npz", "Fortran order")
def _(path: Path) -> None:
    np.savez(path, images=np.asfortranarray(PIXELS))


@hostile("one-row.npz", "one row of .* takes")
def _(path: Path) -> None:
    entry = zipfile.ZipInfo("images.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(entry, _npy(np.zeros(20_000, np.uint8), shape=(1, 300 << 20)))
    raw, size = path.read_bytes(), entry.file_size - 20_000 + (300 << 20)
    at = raw.index(b"PK\x01\x02")  # the directory agrees with the header, so only the rule about rows is left
    path.write_bytes(raw[: at + 20] + struct.pack("<II", size, size) + raw[at + 28 :])


@hostile("bomb.npz", "times its size")
def _(path: Path) -> None:
    np.savez_compressed(path, images=np.zeros((80 << 10, 1024), np.uint8))


@hostile("checksum.npz", "damaged, cut short")
def _(path: Path) -> None:
    _npz(path, _npy(PIXELS), zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(PIXELS.tobytes()[:50], PIXELS.tobytes()[:49] + b"!"))


@hostile("deflate.npz", "damaged, cut short")
def _(path: Path) -> None:
    _npz(path, _npy(np.frombuffer(os.urandom(156 * 192), np.uint8).reshape(156, 8, 8, 3)))
    raw = bytearray(path.read_bytes())
    raw[10_000:10_100] = bytes(100)
    path.write_bytes(raw)


@hostile("cut.npz", "not a readable zip file")
def _(path: Path) -> None:
    np.savez(path, images=PIXELS)
    path.write_bytes(path.read_bytes()[:300])
