"""The data that a pickle can hold, and how each kind is made from what the file says.

Arrays are views of the pickle itself, so they cost no memory of their own when it is memory-mapped; what must be
copied is counted against the size of the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MAX_CONTAINERS = 4_000_000  # lists, dicts and sets: one opcode of one byte makes a set of 216
_COPIES = 4  # a byte array of protocol 2 is text, bytes and byte array one after the other
_MAX_AXIS = 1 << 48  # keeps products of axes small enough to multiply
_DTYPES = re.compile(r"b1|[iu][1248]|f(2|4|8|16)|c(8|16|32)|[SU][1-9]\d{0,8}|O\d?")
_KEYS = (str, bytes, int, float, complex, type(None), np.number, np.bool_)  # a nested tuple takes for ever to hash


class NotData(Exception):
    """Something in a pickle that no array, list, dict, text or number needs; the message goes on a sentence."""


@dataclass(frozen=True, eq=False)
class Known:
    """What stands for an allowed global: a way to make data, or None where it is only named."""

    name: str
    make: Callable[..., object] | None


@dataclass(eq=False)
class Pending:
    """An array between its creation and its contents."""

    array: NDArray[Any] | None = None


class DType:
    """A dtype; numpy's own objects are shared by the whole process, and a pickle may not change those."""

    def __init__(self, spec: object, *_: object) -> None:
        spec = _text(spec)
        if not _DTYPES.fullmatch(spec):
            raise NotData(f"it has an array of dtype {spec[:40]!r}, and only numbers and text are read")
        self.dtype: np.dtype[Any] = np.dtype(spec)

    def set_state(self, state: object) -> None:
        if not isinstance(state, tuple) or not 8 <= len(state) <= 9 or any(part is not None for part in state[2:5]):
            raise NotData("it has an array with named fields or subarrays, and only plain arrays are read")
        order = _text(state[1])
        if (
            order not in ("<", ">", "|", "=")
            or state[5] not in (-1, self.dtype.itemsize)
            or state[8:] not in ((), (None,))
        ):
            raise NotData("it has an array with a dtype of its own making, and only plain arrays are read")
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder("<" if order == "<" else ">")


class Makers:
    """Makes values for one pickle of ``size`` bytes, and keeps account of what they take."""

    def __init__(self, size: int) -> None:
        self._copies_left = _COPIES * size
        self._containers_left = MAX_CONTAINERS

    def known(self, module: str, name: str) -> Known:
        """What stands for a global; NotData names one that is not on the list."""
        full = f"{module}.{name}"
        if full not in _GLOBALS:
            raise NotData(f"it asks for {full[:80]!r}, which is no data and could run a program; nothing of it was run")
        maker = _GLOBALS[full]
        return Known(full, None if maker is None else getattr(self, maker))

    def _pending(self, kind: object, *_: object) -> Pending:
        if not isinstance(kind, Known) or kind.name != "numpy.ndarray":
            raise NotData("it has an array of a class of its own")
        return Pending()

    def filled(self, shape: object, dtype: object, fortran: object, raw: Any) -> NDArray[Any]:
        if isinstance(raw, list):
            return self._objects(shape, dtype, fortran, raw)
        if isinstance(raw, str):
            raw = self._encoded(raw)
        return self._from_buffer(raw, dtype, shape, "F" if fortran else "C")

    def _from_buffer(self, raw: Any, dtype: object, shape: object, order: Any) -> NDArray[Any]:
        axes, plain = _axes(shape), _plain(dtype)
        if not isinstance(raw, bytes | bytearray | memoryview) or len(raw) != math.prod(axes) * plain.itemsize:
            held = len(raw) if isinstance(raw, bytes | bytearray | memoryview) else 0
            raise NotData(f"it has an array of {plain} {axes} and {held:,} bytes to fill it with")
        array: NDArray[Any] = np.frombuffer(raw, plain) if len(raw) else np.empty(0, plain)
        return array.reshape(axes, order=order)

    def _objects(self, shape: object, dtype: object, fortran: object, items: list[object]) -> NDArray[Any]:
        axes = _axes(shape)
        if not isinstance(dtype, DType) or dtype.dtype != np.dtype(object) or len(items) != math.prod(axes):
            raise NotData(f"it has an array of {axes} and a list of {len(items):,} to fill it with")
        self.copy(len(items))
        array = np.empty(len(items), object)
        for i, item in enumerate(items):  # assigning a list at once would look inside its items
            array[i] = item
        return array.reshape(axes, order="F" if fortran else "C")

    def _scalar(self, dtype: object, raw: Any) -> object:
        raw = self._encoded(raw) if isinstance(raw, str) else raw
        self.copy(len(raw))
        return self._from_buffer(raw, dtype, (1,), "C")[0]

    def _encoded(self, text: str, encoding: str = "latin1") -> bytes:
        """The bytes that protocols 0 to 2 spell as text."""
        if encoding not in ("latin1", "latin-1"):
            raise NotData(f"it encodes text as {encoding[:40]!r}")
        self.copy(len(text))
        return text.encode("latin1")

    def _empty_bytes(self) -> bytes:
        return b""

    def bytearray(self, content: Any = b"", encoding: str = "latin1") -> bytearray:
        content = self._encoded(content, encoding) if isinstance(content, str) else content
        if not isinstance(content, bytes | bytearray | memoryview):
            raise NotData(f"it makes a byte array of a {type(content).__name__}")
        self.copy(len(content))
        return bytearray(content)

    def _dtype(self, spec: object, *flags: object) -> DType:
        return DType(spec, *flags)

    def _set(self, items: Any = ()) -> set[Any]:
        self.count(1)
        self.copy(len(items))
        return set(map(key_only, only((list, tuple), items)))

    def _frozenset(self, items: Any = ()) -> frozenset[Any]:
        return frozenset(self._set(items))

    def _dict(self, content: Any = None) -> dict[Any, Any]:
        """Ordered and default dicts become plain ones; the factory of a default dict is dropped."""
        self.count(1)
        pairs = content if isinstance(content, list) else []
        self.copy(len(pairs))
        return {key_only(key): value for key, value in pairs}

    def _complex(self, real: float, imaginary: float) -> complex:
        return complex(real, imaginary)

    def copy(self, n: int) -> None:
        self._copies_left -= n
        if self._copies_left < 0:
            raise NotData(f"it unpacks to more than {_COPIES} times its size")

    def count(self, n: int) -> None:
        self._containers_left -= n
        if self._containers_left < 0:
            raise NotData(f"it holds more than {MAX_CONTAINERS:,} lists, dicts and sets")


def _text(value: object) -> str:
    """What Python 2 or 3 wrote as ``str``."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    if not isinstance(value, str):
        raise NotData(f"it has a {type(value).__name__} where a name must be")
    return value


def _axes(shape: object) -> tuple[int, ...]:
    if type(shape) is not tuple or len(shape) > 32 or not all(type(n) is int and 0 <= n < _MAX_AXIS for n in shape):
        raise NotData("it has an array of an impossible shape")
    return shape


def _plain(dtype: object) -> np.dtype[Any]:
    if not isinstance(dtype, DType) or dtype.dtype.hasobject:
        raise NotData("it has an array of objects where numbers must be")
    return dtype.dtype


def only(kind: Any, value: Any) -> Any:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if type(value) not in kinds:
        raise NotData(f"it adds to a {type(value).__name__} as if it were a {kinds[0].__name__}")
    return value


def key_only(value: Any) -> Any:
    if not isinstance(value, _KEYS):
        raise NotData(f"it has a {type(value).__name__} as a key, and only text and numbers can be keys")
    return value


def paired(target: dict[Any, Any], items: list[Any]) -> dict[Any, Any]:
    target.update((key_only(key), value) for key, value in zip(items[::2], items[1::2], strict=True))
    return target


_CORE: Final = ("numpy.core", "numpy._core")  # before and since numpy 2
_BUILTINS: Final = ("builtins", "__builtin__")  # Python 3 and 2
_GLOBALS: Final[dict[str, str | None]] = {
    **{f"{core}.multiarray._reconstruct": "_pending" for core in _CORE},
    **{f"{core}.multiarray.scalar": "_scalar" for core in _CORE},
    **{f"{core}.numeric._frombuffer": "_from_buffer" for core in _CORE},
    "numpy.ndarray": None,
    "numpy.dtype": "_dtype",
    "_codecs.encode": "_encoded",
    **{f"{home}.bytes": "_empty_bytes" for home in _BUILTINS},
    **{f"{home}.bytearray": "bytearray" for home in _BUILTINS},
    **{f"{home}.set": "_set" for home in _BUILTINS},
    **{f"{home}.frozenset": "_frozenset" for home in _BUILTINS},
    **{f"{home}.complex": "_complex" for home in _BUILTINS},
    **{f"{home}.{kind}": None for home in _BUILTINS for kind in ("list", "dict", "int", "float", "str")},
    "collections.OrderedDict": "_dict",
    "collections.defaultdict": "_dict",
}
