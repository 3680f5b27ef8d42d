"""Pickles of data sets, read as data: arrays, lists, dicts, text, bytes and numbers.

``find_class`` returns functions of this file alone, so a pickle imports, calls and instantiates nothing else.  The
unpickler is the one that the standard library has in Python: the one in C reserves as many bytes as a pickle names.
"""

from __future__ import annotations

import math
import mmap
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

from glocal.common.errors import DataError

DTYPES = re.compile(r"b1|[iu][1248]|f(2|4|8|16)|c(8|16|32)|[SU][1-9]\d{0,8}")  # numbers and text, no objects
VIEW_FROM = 1024  # bytes: a longer byte string is a view of the file


def read_pickle(path: Path) -> Any:
    """The data in a pickle of protocol 0 to 5, arrays as views of the mapped file; text of Python 2 comes as bytes."""
    try:
        with path.open("rb") as file:
            reader = Reader(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return DataUnpickler(reader, encoding="bytes").load()  # type: ignore[arg-type]
    except Exception as error:  # a damaged pickle makes an unpickler fail in any way
        reason = " ".join(str(error).split())[:150]
        raise DataError(f"{path}: not a pickle of data ({reason}); get another copy", code="pickle") from error


class Reader:
    def __init__(self, content: mmap.mmap) -> None:
        self.content, self.view, self.at = content, memoryview(content), 0

    def read(self, n: int) -> bytes | memoryview:
        begin, self.at = self.at, self.at + n
        if not 0 <= n <= len(self.content) - begin:
            raise ValueError(f"{n:,} bytes must follow byte {begin:,} of {len(self.content):,}")
        return self.content[begin : self.at] if n < VIEW_FROM else self.view[begin : self.at]

    def readline(self) -> bytes:
        return bytes(self.read(self.content.find(b"\n", self.at) + 1 - self.at))


class DType:
    """Stands for a dtype: numpy shares its own, and a pickle must not change those."""

    def __init__(self, name: Any, *_: object) -> None:
        text = str(name, "latin1") if isinstance(name, bytes) else name
        if not isinstance(text, str) or not DTYPES.fullmatch(text):
            raise ValueError(f"an array of dtype {text!r:.40}")
        self.dtype: np.dtype[Any] = np.dtype(f"<{text}")


class Array:
    """Stands for an array until its content comes."""


def filled(raw: Any, kind: DType, shape: tuple[int, ...], order: Any) -> Any:
    if min(shape, default=0) < 0 or math.prod(shape) * kind.dtype.itemsize != len(raw):
        raise ValueError(f"an array of {kind.dtype} {shape} with {len(raw):,} bytes")
    return np.frombuffer(raw, kind.dtype).reshape(shape, order=order) if len(raw) else np.empty(shape, kind.dtype)


def as_bytes(content: Any = b"", *_: object) -> Any:
    return content.encode("latin1") if isinstance(content, str) else memoryview(content)  # no bytes(number)


ALLOWED: dict[str, Any] = {
    "numpy._core.multiarray._reconstruct": lambda *_: Array(),
    "numpy._core.multiarray.scalar": lambda kind, raw: filled(raw, kind, (1,), "C")[0],
    "numpy._core.numeric._frombuffer": filled,
    "numpy.dtype": DType,
    **dict.fromkeys(["_codecs.encode", "builtins.bytes", "builtins.bytearray"], as_bytes),
    **dict.fromkeys(["collections.OrderedDict", "collections.defaultdict"], lambda *_: {}),
    **dict.fromkeys(["numpy.ndarray", "builtins.list", "builtins.int"]),  # arguments of the others
}


class DataUnpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}".replace("numpy.core.", "numpy._core.").replace("__builtin__.", "builtins.")
        if full not in ALLOWED:
            raise ValueError(f"it asks for {full!r:.80}, which is no data and was not run")
        return ALLOWED[full]


def build(unpickler: Any) -> None:
    """Only what stands for an array or a dtype takes a state."""
    state, target = unpickler.stack.pop(), unpickler.stack[-1]
    if isinstance(target, DType):
        target.dtype = target.dtype.newbyteorder(">") if state[1] in (">", b">") else target.dtype
    elif isinstance(target, Array):
        shape, kind, fortran, raw = state[-4:]
        unpickler.stack[-1] = filled(raw, kind, shape, "F" if fortran else "C")
    else:
        raise ValueError(f"it changes a {type(target).__name__}")


def byte_array(unpickler: Any) -> None:
    """A view like other bytes; the standard library would reserve the length before it reads."""
    unpickler.append(unpickler.read(int.from_bytes(unpickler.read(8), "little")))


DataUnpickler.dispatch = pickle._Unpickler.dispatch | {pickle.BUILD[0]: build, pickle.BYTEARRAY8[0]: byte_array}
