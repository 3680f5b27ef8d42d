"""An unpickler that can only build data.  Nothing is imported, called or instantiated on behalf of the file.

It stands on the unpickler that the standard library has in Python, because the one in C obeys before anybody can
object: a memo index of two thousand million, in six bytes, makes it allocate 32 GiB.  Here every opcode comes from a
list, every length is compared with what is left of the file, and the globals that arrays, byte strings and sets are
spelled with stand for functions of ``pickle_values``.
"""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Callable
from typing import Any, NoReturn

from glocal.data.pickle_values import DType, Known, Makers, NotData, Pending, key_only, only, paired

VIEW_FROM = 1024  # bytes: longer byte strings stay where they are and come as memoryviews
_RELEASE_AFTER = 64 << 20  # bytes read from a memory map before its pages are given back


class Reader:
    """A file in memory or memory-mapped, of which nothing can be read that is not there."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.size, self.at = len(data), 0
        self._data, self._view = data, memoryview(data).toreadonly()
        self._released = 0

    def read(self, n: int) -> bytes:
        start = self._advance(n)
        return self._data[start : self.at]

    def view(self, n: int) -> bytes | memoryview:
        return self.read(n) if n < VIEW_FROM else self._view[self._advance(n) : self.at]

    def readline(self) -> bytes:
        end = self._data.find(b"\n", self.at)
        if end < 0:
            raise NotData(f"the line that begins at byte {self.at:,} does not end")
        return self.read(end + 1 - self.at)

    def expect(self, n: int) -> None:
        left = self.size - self.at
        if not 0 <= n <= left:
            raise NotData(f"it ends too early: {n:,} bytes must follow byte {self.at:,}, and {left:,} do")

    def _advance(self, n: int) -> int:
        self.expect(n)
        self.at += n
        if self.at - self._released > _RELEASE_AFTER:
            self._release()
        return self.at - n

    def _release(self) -> None:
        """Give pages of a map back, or parsing would hold all of a large file; what is used again is read again."""
        self._released = self.at
        if isinstance(self._data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self._data.madvise(mmap.MADV_DONTNEED)


class _Memo(dict[int, Any]):
    def __getitem__(self, index: int) -> Any:
        value = super().__getitem__(index)
        if not isinstance(value, Pending):
            return value
        if value.array is None:
            raise NotData("it uses an array before it says what is in it")
        return value.array


class DataUnpickler(pickle._Unpickler):
    """``load()`` gives data, or raises NotData; damaged bytes can make it raise anything."""

    stack: list[Any]
    metastack: list[list[Any]]
    append: Callable[[object], None]

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader, encoding="latin1")  # the only encoding that every string of Python 2 survives
        self._reader = reader
        self._makers = Makers(reader.size)
        self.memo = _Memo()

    def find_class(self, module: str, name: str) -> Known:
        return self._makers.known(module, name)

    def pop_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.metastack.pop()
        self.append = self.stack.append
        return items

    # Opcodes that the standard library would obey too readily.

    def _frame(self) -> None:
        """Frames are hints about buffering; what is in them is read as if they were not there, but it must be there."""
        self._reader.expect(self._length(8))

    def _bytes4(self) -> None:
        self.append(self._reader.view(self._length(4)))

    def _bytes8(self) -> None:
        self.append(self._reader.view(self._length(8)))

    def _string4(self) -> None:
        """A ``str`` of Python 2; a long one is the bytes of an array or a picture."""
        found = self._reader.view(self._length(4))
        self.append(found.decode("latin1") if isinstance(found, bytes) else found)

    def _bytearray8(self) -> None:
        """How protocol 5 spells the bytes of an array, too."""
        found = self._reader.view(self._length(8))
        self.append(self._makers.bytearray(found) if isinstance(found, bytes) else found)

    def _length(self, width: int) -> int:
        return int.from_bytes(self._reader.read(width), "little")

    def _new_list(self) -> None:
        self._makers.count(1)
        self.append([])

    def _new_dict(self) -> None:
        self._makers.count(1)
        self.append({})

    def _new_set(self) -> None:
        self._makers.count(1)
        self.append(set())

    def _marked_list(self) -> None:
        self._makers.count(1)
        items = self.pop_mark()
        self.append(items)

    def _marked_dict(self) -> None:
        self._makers.count(1)
        items = self.pop_mark()
        self.append(paired({}, items))

    def _marked_frozenset(self) -> None:
        self._makers.count(1)
        items = self.pop_mark()
        self.append(frozenset(map(key_only, items)))

    def _append(self) -> None:
        value = self.stack.pop()
        only(list, self.stack[-1]).append(value)

    def _appends(self) -> None:
        items = self.pop_mark()
        only(list, self.stack[-1]).extend(items)

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        paired(only(dict, self.stack[-1]), [key, value])

    def _set_items(self) -> None:
        items = self.pop_mark()
        paired(only(dict, self.stack[-1]), items)

    def _add_items(self) -> None:
        items = self.pop_mark()
        only(set, self.stack[-1]).update(map(key_only, items))

    def _reduce(self) -> None:
        args, known = self.stack.pop(), self.stack[-1]
        if not isinstance(known, Known) or known.make is None or type(args) is not tuple:
            raise NotData(f"it calls {known.name if isinstance(known, Known) else type(known).__name__!r}")
        self.stack[-1] = known.make(*args)

    def _build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, DType):
            target.set_state(state)
        elif isinstance(target, Pending) and target.array is None:
            self.stack[-1] = target.array = self._makers.filled(*(state[1:] if len(state) == 5 else state))
        else:
            raise NotData(f"it changes the attributes of a {type(target).__name__}")

    def _instance(self) -> NoReturn:
        known = self.find_class(*(self._reader.readline()[:-1].decode("latin1") for _ in range(2)))
        raise NotData(f"it has an instance of {known.name}")

    def _stop(self) -> None:
        if len(self.stack) != 1 or self.metastack or self._reader.at != self._reader.size:
            raise NotData(f"it ends at byte {self._reader.at:,} of {self._reader.size:,} with parts left over")
        _STANDARD[pickle.STOP[0]](self)  # raises what load() waits for


def _refusing(what: str) -> Callable[[Any], NoReturn]:
    def refuse(_: Any) -> NoReturn:
        raise NotData(f"it has {what}, which no data needs")

    return refuse


_AS_IT_IS = (
    "MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT "
    "STRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 SHORT_BINBYTES "
    "TUPLE EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE "
    "GLOBAL STACK_GLOBAL PROTO"
)
_STANDARD: dict[int, Any] = dict(pickle._Unpickler.dispatch)
_OWN: dict[str, Any] = {
    "FRAME": DataUnpickler._frame,
    "BINBYTES": DataUnpickler._bytes4,
    "BINBYTES8": DataUnpickler._bytes8,
    "BINSTRING": DataUnpickler._string4,
    "BYTEARRAY8": DataUnpickler._bytearray8,
    "EMPTY_LIST": DataUnpickler._new_list,
    "EMPTY_DICT": DataUnpickler._new_dict,
    "EMPTY_SET": DataUnpickler._new_set,
    "LIST": DataUnpickler._marked_list,
    "DICT": DataUnpickler._marked_dict,
    "FROZENSET": DataUnpickler._marked_frozenset,
    "APPEND": DataUnpickler._append,
    "APPENDS": DataUnpickler._appends,
    "SETITEM": DataUnpickler._set_item,
    "SETITEMS": DataUnpickler._set_items,
    "ADDITEMS": DataUnpickler._add_items,
    "REDUCE": DataUnpickler._reduce,
    "BUILD": DataUnpickler._build,
    "INST": DataUnpickler._instance,
    "STOP": DataUnpickler._stop,
    **dict.fromkeys(("PERSID", "BINPERSID"), _refusing("a reference to something outside the file")),
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), _refusing("a class from the extension registry")),
    **dict.fromkeys(("OBJ", "NEWOBJ", "NEWOBJ_EX"), _refusing("an object of a class")),
    **dict.fromkeys(("NEXT_BUFFER", "READONLY_BUFFER"), _refusing("a buffer that lies outside the file")),
}
DataUnpickler.dispatch = {
    **{(code := getattr(pickle, name)[0]): _STANDARD[code] for name in _AS_IT_IS.split()},
    **{getattr(pickle, name)[0]: do for name, do in _OWN.items()},
}
