"""Pickles of other people, read as data: arrays, lists, dicts, text, bytes and numbers, and nothing else.

``find_class`` knows a short list of names, and each stands for a function of this file: nothing is imported, called or
instantiated on behalf of a pickle.  The unpickler is the one that the standard library has in Python.  The one in C
cannot leave large byte strings in the file, and obeys before anybody can object: a memo index of two thousand million,
in six bytes, makes it allocate 32 GiB.
"""

from __future__ import annotations

import math
import mmap
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from glocal.common.errors import DataError

MAX_DEPTH = 32  # of lists in lists; a data set needs three
MAX_STEPS = 3_000_000  # reads, about two per opcode: one byte can make a list, a mark or a memo entry of 100 bytes
_BYTES_PER_STEP = 32  # a large pickle may take more of them: a picture in it takes forty
_COPIES = 4  # what may be copied, in sizes of the file; arrays are views and cost nothing
_VIEW_FROM = 1024  # bytes: longer byte strings stay where they are and come as memoryviews
_RELEASE_AFTER = 64 << 20  # bytes read from a memory map before its pages are given back
_DTYPES = re.compile(r"b1|[iu][1248]|f(2|4|8|16)|c(8|16|32)|[SU][1-9]\d{0,8}")
_LEAVES = (str, bytes, memoryview, int, float, type(None), np.generic)
Buffer: TypeAlias = bytes | memoryview


def read_pickle(source: str | Path | BinaryIO, *, name: str | None = None) -> Any:
    """What a pickle of protocol 0 to 5 holds; anything that is not data is refused, and nothing in it is run.

    A path is memory-mapped and its arrays are read-only views of the map, so a pickle larger than the memory can be
    read; a stream is read to its end, which whoever opened it must have bounded.  Byte strings of 1 KiB and more come
    as memoryviews, text of Python 2 and byte arrays as bytes.  Ordered and default dicts
    come as dicts.
    """
    where = name or (str(source) if isinstance(source, str | Path) else getattr(source, "name", "(unnamed pickle)"))
    data = _mapped(Path(source)) if isinstance(source, str | Path) else source.read()
    if not data:
        raise DataError(f"{where}: the pickle is empty (0 bytes); copy it again", code="pickle")
    try:
        reader = _Reader(data)
        value = _DataUnpickler(reader).load()
        if reader.at != reader.size:
            raise _NotData(f"it ends at byte {reader.at:,} of {reader.size:,} with parts left over")
        _check_tree(value, MAX_DEPTH, [max(1_000_000, 4 * len(data))])
    except _NotData as refused:
        what = f"this pickle is refused: {refused}; get the data in another form"
    except MemoryError:
        what = "not enough memory to read this pickle; get the data in another form"
    except Exception as error:  # damaged bytes make an unpickler fail in any way
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        what = f"not a pickle of data, or a damaged one ({reason}); copy it again"
    else:
        return value
    raise DataError(f"{where}: {what}", code="pickle")


def _mapped(path: Path) -> mmap.mmap | bytes:
    if not path.is_file():  # opening a named pipe would wait for ever
        raise DataError(f"{path}: no such file, or not a regular one; name a pickle file")
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error


def _check_tree(value: object, depth: int, budget: list[int]) -> None:
    """Refuse what is no data, and what would trap those who walk the value: great depth, a list of lists of one list.

    ``budget`` is the number of values left; in an honest pickle nearly every value has bytes of its own in the file.
    """
    if isinstance(value, _LEAVES) or type(value) is np.ndarray:
        return
    if not isinstance(value, list | tuple | dict):
        raise _NotData("it holds the name of a class or a dtype in place of data")
    budget[0] -= len(value)
    if not depth or budget[0] < 0:
        raise _NotData(f"its lists lie more than {MAX_DEPTH} deep, contain themselves or repeat one another too often")
    for each in value.values() if isinstance(value, dict) else value:
        _check_tree(each, depth - 1, budget)


class _NotData(Exception):
    """Something in a pickle that no array, list, dict, text or number needs; the message goes on a sentence."""


class _Reader:
    """A file in memory or memory-mapped: nothing can be read that is not there, and not too often."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.size, self.at = len(data), 0
        self._data, self._view = data, memoryview(data).toreadonly()
        self._steps, self._released = MAX_STEPS + self.size // _BYTES_PER_STEP, 0

    def read(self, n: int) -> Buffer:
        self.expect(n)
        begin, self.at, self._steps = self.at, self.at + n, self._steps - 1
        if self._steps < 0:
            raise _NotData("it has more parts than a data set of its size needs")
        if self.at - self._released > _RELEASE_AFTER:
            self._release()
        return self._data[begin : self.at] if n < _VIEW_FROM else self._view[begin : self.at]

    def readline(self) -> bytes:
        end = self._data.find(b"\n", self.at) + 1
        if not end:
            raise _NotData(f"the line that begins at byte {self.at:,} does not end")
        return bytes(self.read(end - self.at))

    def expect(self, n: int) -> None:
        left = self.size - self.at
        if not 0 <= n <= left:
            raise _NotData(f"it ends too early: {n:,} bytes must follow byte {self.at:,}, and {left:,} do")

    def _release(self) -> None:
        """Give pages of a map back, or parsing would hold all of a large file; what is used again is read again."""
        self._released = self.at
        if isinstance(self._data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self._data.madvise(mmap.MADV_DONTNEED)


class _DType:
    """A dtype; numpy's own objects are shared by the whole process, and a pickle may not change those."""

    def __init__(self, spec: object, *_: object) -> None:
        text = _text(spec)
        if not _DTYPES.fullmatch(text):
            raise _NotData(f"it has an array of dtype {text[:40]!r}, and only numbers and text are read")
        self.dtype: np.dtype[Any] = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        order = _text(state[1])
        plain = all(part is None for part in state[2:5]) and state[5] in (-1, self.dtype.itemsize)
        if not plain or order not in ("<", ">", "|", "=") or state[8:] not in ((), (None,)):
            raise _NotData("it has an array with a dtype of its own making, and only plain arrays are read")
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder("<" if order == "<" else ">")


class _Pending:
    """An array between its creation and its contents."""

    array: NDArray[Any] | None = None


class _Memo(dict[int, Any]):
    """Gives the array itself where the pickle refers to what stood for it."""

    def __getitem__(self, index: int) -> Any:
        value = super().__getitem__(index)
        return value.array if isinstance(value, _Pending) else value


class _DataUnpickler(pickle._Unpickler):
    """``load()`` gives data, or raises _NotData; damaged bytes can make it raise anything."""

    stack: list[Any]
    append: Callable[[object], None]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, reader: _Reader) -> None:
        super().__init__(reader, encoding="bytes")  # type: ignore[arg-type]  # memoryviews serve as well
        self._reader, self._copies_left, self.memo = reader, _COPIES * reader.size, _Memo()

    def find_class(self, module: str, name: str) -> object:
        home = module.replace("numpy.core", "numpy._core").replace("__builtin__", "builtins")  # numpy 1, Python 2
        if f"{home}.{name}" not in _GLOBALS:
            told = f"{module}.{name}"[:80]
            raise _NotData(f"it asks for {told!r}, which is no data and could run a program; nothing of it was run")
        make = _GLOBALS[f"{home}.{name}"]
        return getattr(self, make) if isinstance(make, str) else make

    # What stands for the globals.

    def _pending(self, kind: object, *_: object) -> _Pending:
        if kind is not _NDARRAY:
            raise _NotData("it has an array of a class of its own")
        return _Pending()

    def _array(self, raw: Any, dtype: object, shape: Any, order: Any) -> NDArray[Any]:
        if not isinstance(dtype, _DType) or not isinstance(raw, Buffer) or type(shape) is not tuple or len(shape) > 32:
            raise _NotData("it has an array of objects, and only numbers and text are read")
        if not all(type(n) is int and 0 <= n < 1 << 48 for n in shape):
            raise _NotData("it has an array of an impossible shape")
        if len(raw) != math.prod(shape) * dtype.dtype.itemsize:
            raise _NotData(f"it has an array of {dtype.dtype} {shape} and {len(raw):,} bytes to fill it with")
        flat: NDArray[Any] = np.frombuffer(raw, dtype.dtype) if len(raw) else np.empty(0, dtype.dtype)
        return flat.reshape(shape, order=order)

    def _scalar(self, dtype: object, raw: Any) -> object:
        self._copy(len(raw))
        return self._array(raw, dtype, (1,), "C")[0]

    def _encoded(self, text: str, encoding: object) -> bytes:
        """The bytes that protocols 0 to 2 spell as text."""
        if _text(encoding) not in ("latin1", "latin-1"):
            raise _NotData(f"it encodes text as {encoding!r:.40}")
        self._copy(len(text))
        return text.encode("latin1")

    def _bytes(self, content: Any = b"", encoding: object = "latin1") -> Buffer:
        content = self._encoded(content, encoding) if isinstance(content, str) else content
        if not isinstance(content, Buffer):
            raise _NotData(f"it makes a byte array of a {type(content).__name__}")
        return content

    def _dict(self, content: Any = None) -> dict[Any, Any]:
        pairs = content if isinstance(content, list) else []
        self._copy(len(pairs))
        return {_key(key): value for key, value in pairs}

    def _copy(self, n: int) -> None:
        self._copies_left -= n
        if self._copies_left < 0:
            raise _NotData(f"it unpacks to more than {_COPIES} times its size")

    # Opcodes that the standard library would obey too readily.

    def _frame(self) -> None:
        """Frames are hints about buffering; what is in them is read as if they were not there, but it must be there."""
        self._reader.expect(int.from_bytes(self._reader.read(8), "little"))

    def _bytearray8(self) -> None:
        """How protocol 5 spells the bytes of an array, too; the standard library reserves the space unseen."""
        self.append(self._reader.read(int.from_bytes(self._reader.read(8), "little")))

    def _reduce(self) -> None:
        args, make = self.stack.pop(), self.stack[-1]
        if not callable(make) or type(args) is not tuple:
            raise _NotData(f"it calls a {type(make).__name__}")
        self.stack[-1] = make(*args)

    def _build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, _DType):
            target.__setstate__(state)
        elif isinstance(target, _Pending) and target.array is None:
            shape, dtype, fortran, raw = state[-4:]
            self.stack[-1] = target.array = self._array(raw, dtype, shape, "F" if fortran else "C")
        else:
            raise _NotData(f"it changes the attributes of a {type(target).__name__}")

    def _set_items(self) -> None:
        items = self.pop_mark()
        self._update(self.stack[-1], items)

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._update(self.stack[-1], [key, value])

    def _new_dict(self) -> None:
        items = self.pop_mark()
        self.append({})
        self._update(self.stack[-1], items)

    def _update(self, target: object, items: list[Any]) -> None:
        if type(target) is not dict:
            raise _NotData(f"it adds to a {type(target).__name__} as if it were a dict")
        target.update((_key(key), value) for key, value in zip(items[::2], items[1::2], strict=True))


def _text(value: object) -> str:
    """What Python 2 or 3 wrote as ``str``; to make text of a nested tuple would take for ever."""
    if not isinstance(value, str | bytes):
        raise _NotData(f"it has a {type(value).__name__} in place of text")
    return value.decode("latin1") if isinstance(value, bytes) else value


def _key(value: Any) -> Any:
    """A nested tuple takes for ever to hash, and large numbers can be chosen so that all of them collide."""
    small = isinstance(value, int) and abs(value) < 1 << 60
    if not small and not isinstance(value, str | bytes | float | np.integer | None):
        raise _NotData(f"it has a {type(value).__name__} as a key, and only text and small numbers can be keys")
    return value


_NDARRAY, _FACTORY = object(), object()  # of classes that are only named: of arrays, of default dicts
_GLOBALS: Final[dict[str, object]] = {  # the name of a method above where it is called
    "numpy._core.multiarray._reconstruct": "_pending",
    "numpy._core.multiarray.scalar": "_scalar",
    "numpy._core.numeric._frombuffer": "_array",
    "numpy.ndarray": _NDARRAY,
    "numpy.dtype": _DType,
    "_codecs.encode": "_encoded",
    "builtins.bytes": "_bytes",
    "builtins.bytearray": "_bytes",
    **dict.fromkeys((f"builtins.{kind}" for kind in ("list", "dict", "int", "float", "str")), _FACTORY),
    "collections.OrderedDict": "_dict",
    "collections.defaultdict": "_dict",
}
_REFUSED = "PERSID BINPERSID EXT1 EXT2 EXT4 INST OBJ NEWOBJ NEWOBJ_EX NEXT_BUFFER READONLY_BUFFER EMPTY_SET ADDITEMS"


def _refuse(_: object) -> None:
    raise _NotData("it has an object, a set or something outside the file, which no data set needs")


_OPCODES: dict[int, Any] = {
    **pickle._Unpickler.dispatch,
    **{getattr(pickle, opcode)[0]: _refuse for opcode in f"{_REFUSED} FROZENSET".split()},
    pickle.FRAME[0]: _DataUnpickler._frame,
    pickle.BYTEARRAY8[0]: _DataUnpickler._bytearray8,
    pickle.REDUCE[0]: _DataUnpickler._reduce,
    pickle.BUILD[0]: _DataUnpickler._build,
    pickle.SETITEM[0]: _DataUnpickler._set_item,
    pickle.SETITEMS[0]: _DataUnpickler._set_items,
    pickle.DICT[0]: _DataUnpickler._new_dict,
}
_DataUnpickler.dispatch = _OPCODES
