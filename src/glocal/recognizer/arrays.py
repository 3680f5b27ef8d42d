"""Arrays as a safetensors file has them, written and read piece by piece: of many photos no copy is in memory."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import IO, Any

import numpy as np

from glocal.recognizer.features import Array

KINDS = {"F16": np.float16, "F32": np.float32, "U8": np.uint8}
CHUNK = 1 << 24  # bytes
LARGEST_HEAD = 1 << 16


def write_arrays(file: IO[bytes], arrays: Mapping[str, Sequence[Array]]) -> str:
    """Arrays by name, each in pieces along its first axis; the hash of what was written."""
    names = {np.dtype(kind): name for name, kind in KINDS.items()}
    head: dict[str, dict[str, Any]] = {}
    at = 0
    for name, pieces in arrays.items():
        kind, shape = np.result_type(*pieces), [sum(map(len, pieces)), *pieces[0].shape[1:]]
        size = math.prod(shape) * kind.itemsize
        head[name] = {"dtype": names[kind], "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    rows = (
        piece[start : start + step].astype(KINDS[head[name]["dtype"]], copy=False).tobytes()
        for name, pieces in arrays.items()
        for piece in pieces
        for step in [max(1, CHUNK // max(1, piece[:1].nbytes))]
        for start in range(0, len(piece), step)
    )
    whole = hashlib.sha256()
    for part in chain([len(text).to_bytes(8, "little"), text], rows):
        whole.update(part)
        file.write(part)
    return whole.hexdigest()


def read_arrays(file: IO[bytes], size: int, sha256: str) -> dict[str, Array]:
    """What ``write_arrays`` wrote into so many bytes; ValueError for anything else."""
    whole = hashlib.sha256(start := file.read(8))
    length = int.from_bytes(start, "little")
    if length > LARGEST_HEAD:
        raise ValueError("the file of its arrays is not what was written")
    whole.update(text := file.read(length))
    arrays: dict[str, Array] = {}
    head, at = json.loads(text), 0
    for name, about in sorted(head.items(), key=lambda each: each[1]["data_offsets"]):
        kind, shape = np.dtype(KINDS[about["dtype"]]), tuple(map(int, about["shape"]))
        begin, at = at, at + math.prod(shape) * kind.itemsize
        if about["data_offsets"] != [begin, at] or min(shape, default=-1) < 0 or 8 + length + at > size:
            raise ValueError(f"its array {name} is not whole")
        arrays[name] = np.empty(shape, kind)
        view = arrays[name].reshape(-1).view(np.uint8).data
        for done in range(0, len(view), CHUNK):
            piece = view[done : done + CHUNK]
            piece[:] = file.read(len(piece))
            whole.update(piece)
    if 8 + length + at != size or whole.hexdigest() != sha256:
        raise ValueError("the file of its arrays is not what was written")
    return arrays
