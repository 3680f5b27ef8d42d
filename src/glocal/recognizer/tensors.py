"""Arrays in a safetensors file: 8 bytes with the length of a JSON table, the table, and the numbers as they are.

>>> name, = unpack(pack({"x": np.arange(3, dtype=np.int64)}), "here")
>>> name
'x'
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from glocal.common.errors import DataError
from glocal.recognizer.features import Array

KINDS = {"F32": np.float32, "F16": np.float16, "U8": np.uint8, "I64": np.int64}
NAMES = {np.dtype(kind): name for name, kind in KINDS.items()}
LARGEST_TABLE = 100 << 20  # bytes, as safetensors itself has it


def pack(arrays: Mapping[str, Array]) -> bytes:
    table, numbers, start = {}, [], 0
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        end = start + len(data)
        table[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [start, end]}
        numbers.append(data)
        start = end
    head = json.dumps(table).encode()
    head += b" " * (-len(head) % 8)
    return b"".join([len(head).to_bytes(8, "little"), head, *numbers])


def unpack(data: bytes, where: str) -> dict[str, Array]:
    """The arrays; every offset and shape is checked before it is believed."""
    try:
        length = int.from_bytes(data[:8], "little")
        if len(data) < 8 or length > min(LARGEST_TABLE, len(data) - 8):
            raise ValueError("it ends within its table")
        table = json.loads(data[8 : 8 + length])
        body = memoryview(data)[8 + length :]
        return {name: _array(body, entry) for name, entry in table.items() if name != "__metadata__"}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(f"{where} is damaged: its numbers cannot be read ({error}); copy it again") from error


def _array(body: memoryview, entry: dict[str, Any]) -> Array:
    kind, shape = np.dtype(KINDS[entry["dtype"]]), tuple(entry["shape"])
    start, end = entry["data_offsets"]
    if any(type(side) is not int or side < 0 for side in (*shape, start, end)):
        raise ValueError("a shape or place that is no number")
    if end > len(body) or end - start != math.prod(shape) * kind.itemsize:
        raise ValueError("a shape that does not fit its numbers")
    return np.frombuffer(body[start:end], kind).reshape(shape).copy()
