"""Pickles as data: every protocol is read, nothing is run, damage gives one sentence."""

from __future__ import annotations

import collections
import os
import pickle
import resource
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glocal.common.errors import DataError
from glocal.research.data.pickles import read_pickle
from refusal import refused

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), np.uint8)
ARRAYS = [
    PIXELS,
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(500, dtype=">i4"),
    np.arange(12).reshape(3, 4)[:, ::2],
    np.array(["ab", "é"]),
    np.array([b"q", b"rs"]),
    np.zeros((0, 3)),
    np.array(5),
    np.array([True, False]),
]
VALUE = {"data": PIXELS, "labels": [0, 0, 1, 1], b"names": ("cat", b"dog"), "f": np.float64(0.5)}


def same(a: Any, b: Any) -> bool:
    if isinstance(b, np.ndarray | np.generic):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()
    if isinstance(b, dict):
        return type(a) is dict and list(a) == list(b) and all(same(a[key], b[key]) for key in b)
    if isinstance(b, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return (type(a) is type(b) or isinstance(a, bytes | memoryview)) and a == b


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pickles") / "data.pkl"


@pytest.mark.parametrize("protocol", range(6))
def test_every_kind_of_data_in_every_protocol(file: Path, protocol: int) -> None:
    plain = [None, True, -5, 2**70, 0.5, "é", b"", b"ab\xff", bytes(5000), (), (1,), bytearray(b"xy"), bytearray(5000)]
    scalars = [np.float32(2.5), np.True_, np.int64(-3), np.bytes_(b"q")]
    value = {"arrays": ARRAYS, "plain": plain, "scalars": scalars, 7: (1, 2, 3, 4, [{}]), b"bytes": "value"}
    file.write_bytes(pickle.dumps(value, protocol))
    assert same(read_pickle(file), value)
    file.write_bytes(pickle.dumps([collections.OrderedDict(b=1), collections.defaultdict(list, {"k": [1]})], protocol))
    assert same(read_pickle(file), [{"b": 1}, {"k": [1]}])


def test_pickles_of_python_2(file: Path) -> None:
    """Byte strings for text, keys and the contents of arrays, and numpy's names of that time."""
    for n in (3, 3000):
        raw = bytes(i % 251 for i in range(n))
        spelled = b"U" + bytes([n]) + raw if n < 256 else b"T" + n.to_bytes(4, "little") + raw
        file.write_bytes(
            b"\x80\x02}U\x04data"
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87Rq\x01(K\x01M"
            + n.to_bytes(2, "little")
            + b"\x85cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
            + spelled
            + b"tbs."
        )
        assert read_pickle(file)[b"data"].tobytes() == raw


class Runs:
    def __init__(self, path: Path) -> None:
        self.target = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.target,)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_run(file: Path, tmp_path: Path, protocol: int) -> None:
    for value in ({"data": PIXELS, "labels": Runs(tmp_path / "ran")}, np.array([Runs(tmp_path / "ran")], object)):
        file.write_bytes(pickle.dumps(value, protocol))
        with refused("pickle", str(file)):
            read_pickle(file)
    assert not (tmp_path / "ran").exists()


def array(dtype: str, shape: tuple[int, ...], raw: bytes) -> bytes:
    """A pickle of an array that claims what it is asked to."""
    axes = b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", n) for n in shape) + b"t"
    kind = b"cnumpy\ndtype\nX" + struct.pack("<I", len(dtype)) + dtype.encode() + b"\x89\x88\x87R"
    head = b"\x80\x03cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01"
    return head + axes + kind + b"\x89B" + struct.pack("<I", len(raw)) + raw + b"tb."


HOSTILE = {
    "eval": (b"cbuiltins\neval\n(S'1+1'\ntR.", "asks for 'builtins.eval'"),
    "getattr": (b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93.", "asks for 'builtins.getattr'"),
    "a file of numpy": (b"\x80\x02cnumpy\nload\nU\x05a.npy\x85R.", "asks for 'numpy.load'"),
    "a dotted name": (b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.", "asks for 'numpy.ndarray.tofile'"),
    "an instance": (b"(i__main__\nData\n.", "asks for '__main__.Data'"),
    "an object of ours": (b"\x80\x02cnumpy\ndtype\nU\x02u1\x85R}U\x05dtypeNsb.", "not a pickle of data"),
    "state of a dict": (b"\x80\x02}}b.", "it changes a dict"),
    "state of an array": (
        b"\x80\x02cnumpy.core.numeric\n_frombuffer\n(U\x08abcdefghcnumpy\ndtype\nU\x02u1\x85RK\x08\x85U\x01CtR"
        b"(K\x01K\x01\x85cnumpy\ndtype\nU\x02i8\x85R\x89U\x08\x01\x01\x01\x01\x01\x01\x01\x01tb.",
        "it changes a ndarray",
    ),
    "huge bytes": (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x.", "bytes must follow"),
    "a huge byte array": (b"\x80\x05\x96" + struct.pack("<Q", 1 << 33) + b"x.", "bytes must follow"),
    "a huge frame": (b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N.", "bytes must follow"),
    "a huge memo": (b"\x80\x04Nr\xff\xff\xff\x7f.", None),
    "a huge array": (array("u1", (1 << 40,), b"x" * 9), "with 9 bytes"),
    "a negative axis": (array("u1", (-1, -9), b"x" * 9), "with 9 bytes"),
    "pointers": (array("O8", (1,), b"\x01" * 8), "an array of dtype 'O8'"),
    "empty strings": (array("S0", (1 << 40,), b""), "an array of dtype 'S0'"),
    "bytes of a number": (b"\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R.", "not a pickle of data"),
    "nothing": (b"", "not a pickle of data"),
    "text": (b"this is no pickle\n", "not a pickle of data"),
    "protocol 9": (b"\x80\x09N.", "unsupported pickle protocol"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_data_is_refused_without_taking_memory(file: Path, name: str) -> None:
    content, words = HOSTILE[name]
    file.write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if words is None:
        read_pickle(file)
    else:
        with refused("pickle", str(file), words):
            read_pickle(file)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10  # KiB
    assert PIXELS.dtype == np.dtype("u1")  # numpy's own is not changed


@given(st.integers(0, 5), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1))
def test_flipped_bytes_give_data_or_one_sentence(file: Path, protocol: int, flips: list[tuple[float, int]]) -> None:
    content = bytearray(pickle.dumps(VALUE, protocol))
    for place, change in flips[:3]:
        content[int(place * len(content))] ^= change
    file.write_bytes(content)
    try:
        read_pickle(file)
    except DataError:
        return


@given(st.integers(0, 5), st.floats(0, 1, exclude_max=True))
def test_a_cut_pickle_is_refused(file: Path, protocol: int, place: float) -> None:
    content = pickle.dumps(VALUE, protocol)
    file.write_bytes(content[: int(place * len(content))])
    with pytest.raises(DataError):
        read_pickle(file)
