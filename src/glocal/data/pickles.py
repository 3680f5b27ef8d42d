"""Pickles of other people, read as data: arrays, lists, dicts, sets, text, bytes and numbers, and nothing else."""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from glocal.data.pickle_machine import DataUnpickler, Reader
from glocal.data.pickle_values import NotData
from glocal_runtime.errors import DataError

MAX_DEPTH = 32  # of lists in lists; a data set needs three
MAX_REPEATED = 1_000_000  # values met again and again in a small pickle
_LEAVES = (str, bytes, bytearray, memoryview, int, float, complex, type(None), np.generic, set, frozenset)


def read_pickle(source: str | Path | BinaryIO, *, name: str | None = None) -> Any:
    """What a pickle of protocol 0 to 5 holds; anything that is not data is refused, and nothing in it is run.

    A path is memory-mapped and its arrays are read-only views of the map, so a pickle larger than the memory can be
    read; a stream is read to its end, which whoever opened it must have bounded.  Byte strings of 1 KiB and more come
    as memoryviews, short ones of Python 2 as latin-1 text: ``raw_bytes`` takes them all.  Ordered and default dicts
    come as dicts.
    """
    where = name or (str(source) if isinstance(source, str | Path) else getattr(source, "name", "(unnamed pickle)"))
    data = _mapped(Path(source)) if isinstance(source, str | Path) else source.read()
    if not data:
        raise DataError(f"{where}: the pickle is empty (0 bytes); copy it again")
    try:
        value = DataUnpickler(Reader(data)).load()
        _check_tree(value, len(data))
    except NotData as refused:
        raise DataError(f"{where}: this pickle is refused: {refused}; get the data in another form") from None
    except MemoryError:
        raise DataError(f"{where}: not enough memory to read this pickle; get the data in another form") from None
    except Exception as error:  # damaged bytes make an unpickler fail in any way
        what = " ".join(str(error).split())[:100] or type(error).__name__
        raise DataError(f"{where}: not a pickle, or a damaged one ({what}); copy it again") from error
    return value


def text_keys(mapping: object, *, where: str) -> dict[str, Any]:
    """A dict whose keys are text, whichever Python wrote them."""
    if not isinstance(mapping, Mapping):
        raise DataError(f"{where}: it must hold a dict, got a {type(mapping).__name__}")
    named: dict[str, Any] = {}
    for key, value in mapping.items():
        text = key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else key
        if not isinstance(text, str):
            raise DataError(f"{where}: the keys of its dict must be text, got {key!r}")
        if text in named:
            raise DataError(f"{where}: its dict has the key {text!r} twice, as text and as bytes; keep one of them")
        named[text] = value
    return named


def raw_bytes(value: object, *, where: str) -> bytes:
    """The bytes of an encoded picture: bytes in any spelling, the text of Python 2, or an array of uint8."""
    if isinstance(value, str):
        try:
            return value.encode("latin1")
        except UnicodeEncodeError:
            raise DataError(f"{where}: it must hold bytes, got text {value[:20]!r}") from None
    if isinstance(value, np.ndarray) and value.dtype in (np.uint8, np.int8):
        return value.tobytes()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise DataError(f"{where}: it must hold bytes, got a {type(value).__name__}")


def _mapped(path: Path) -> mmap.mmap | bytes:
    if not path.is_file():  # opening a named pipe would wait for ever
        raise DataError(f"{path}: no such file, or not a regular one; name a pickle file")
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error


def _check_tree(root: object, size: int) -> None:
    """Refuse what would trap those who walk the value: a list within itself, great depth, a list of lists of one list.

    Every container is visited once.  ``walked`` counts what a walk that does not know about sharing would meet below
    a container; in an honest pickle nearly every value has bytes of its own in the file.
    """
    done: dict[int, tuple[int, int]] = {}  # id -> (depth, walked)
    entered: set[int] = set()
    todo: list[tuple[Any, list[Any] | None]] = [(root, None)] if _containers([root]) else []
    while todo:
        node, inside = todo.pop()
        if inside is not None:  # everything inside is done
            below = [done[id(each)] for each in inside]
            depth = 1 + max((depth for depth, _ in below), default=0)
            walked = len(_values(node)) + sum(walked for _, walked in below)
            if depth > MAX_DEPTH or walked > max(MAX_REPEATED, 4 * size):
                raise NotData(f"its lists lie more than {MAX_DEPTH} deep or repeat one another too often")
            done[id(node)] = depth, walked
        elif id(node) not in done:
            if id(node) in entered:
                raise NotData(f"it has a {type(node).__name__} that contains itself")
            entered.add(id(node))
            inside = _containers(_values(node))
            todo.append((node, inside))
            todo += [(each, None) for each in inside]


def _values(node: Any) -> Collection[Any]:
    if isinstance(node, np.ndarray):
        return node.ravel().tolist()
    return node.values() if isinstance(node, dict) else node


def _containers(values: Iterable[object]) -> list[object]:
    """Those that hold other values; NotData when one is no data, as the bare name of a class."""
    found = [value for value in values if not isinstance(value, _LEAVES)]
    nested = [value for value in found if not isinstance(value, np.ndarray) or value.dtype.hasobject]
    for value in nested:
        if not isinstance(value, list | tuple | dict | np.ndarray):
            raise NotData("it holds the name of a class or a dtype in place of data")
    return nested
