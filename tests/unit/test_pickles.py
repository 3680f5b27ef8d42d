"""Pickles as data: every spelling is read, nothing is run, damage gives one sentence."""

from __future__ import annotations

import collections
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glocal.common.errors import DataError
from glocal.research.data import pickles
from glocal.research.data.packings.content import text_keys
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
    np.arange(3) * 1j,
]


def same(a: Any, b: Any) -> bool:
    if isinstance(b, np.ndarray | np.generic):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()
    if isinstance(b, dict):
        return type(a) is dict and list(a) == list(b) and all(same(a[key], b[key]) for key in b)
    if isinstance(b, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return (type(a) is type(b) or isinstance(a, bytes | memoryview)) and a == b


def of(value: Any, protocol: int) -> Any:
    return read_pickle(io.BytesIO(pickle.dumps(value, protocol)))


@pytest.mark.parametrize("protocol", range(6))
def test_every_kind_of_data_in_every_protocol(tmp_path: Path, protocol: int) -> None:
    plain = [None, True, -5, 2**70, 0.5, "é", b"", b"ab\xff", bytes(5000), (), (1,)]
    plain += [bytearray(b"xy"), bytearray(), bytearray(5000)]
    value = {
        "arrays": ARRAYS,
        "plain": plain,
        "scalars": [np.float32(2.5), np.True_, np.int64(-3), np.bytes_(b"q")],
        7: (1, 2, 3, 4, [{}]),
        b"bytes": "value",
    }
    path = tmp_path / "data.pkl"
    path.write_bytes(pickle.dumps(value, protocol))
    assert same(read_pickle(path), value)
    assert same(of(value, protocol), value)
    special = [collections.OrderedDict(b=1, a=2), collections.defaultdict(list, {"k": [1]})]
    assert same(of(special, protocol), [{"b": 1, "a": 2}, {"k": [1]}])
    core = pickle.dumps([PIXELS, PIXELS[0, 0, 0, 0]], protocol)
    if protocol < 4:  # names are lines there, and may change their length: as numpy 1 called itself
        core = core.replace(b"numpy._core", b"numpy.core")
    assert [array.dtype for array in read_pickle(io.BytesIO(core))] == [np.uint8, np.uint8]


def test_pickles_of_python_2() -> None:
    """As Python 2 wrote it: byte strings for text, keys and the contents of arrays, short and long."""
    for n in (3, 3000):
        raw = bytes(i % 251 for i in range(n))
        spelled = b"U" + bytes([n]) + raw if n < 256 else b"T" + n.to_bytes(4, "little") + raw
        content = (
            b"\x80\x02}U\x04data"
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87Rq\x01(K\x01M"
            + n.to_bytes(2, "little")
            + b"\x85cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
            + spelled
            + b"tbsU\x06labels]h\x01as."
        )
        found = text_keys(read_pickle(io.BytesIO(content)), where="x")
        assert found["data"].tobytes() == raw
        assert found["labels"][0] is found["data"]


def test_arrays_of_a_mapped_pickle_are_views(tmp_path: Path) -> None:
    path = tmp_path / "data.pkl"
    for protocol in (3, 4, 5):
        path.write_bytes(pickle.dumps({"data": np.zeros((1000, 100), np.uint8), "png": bytes(2000)}, protocol))
        found = read_pickle(path)
        assert not found["data"].flags.owndata
        assert not found["data"].flags.writeable
        assert isinstance(found["png"], memoryview)
        path.unlink()


@pytest.mark.parametrize("part", [b"(", b"]0", b"}0", b"\x94", b"N0"])
def test_parts_are_counted(monkeypatch: pytest.MonkeyPatch, part: bytes) -> None:
    """One byte makes a mark, a list, a dict or an entry of the memo, of a hundred bytes."""
    monkeypatch.setattr(pickles, "MAX_STEPS", 2000)
    start, n = b"\x80\x04N", 1000 // len(part)
    end = b"1N." if part == b"(" else b"."
    read_pickle(io.BytesIO(start + part * (n if part != b"(" else 1) + end))
    with refused("pickle", "more parts"):
        read_pickle(io.BytesIO(start + part * 3 * n + end))


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.pkl"):
        with refused("data", "no such file"):
            read_pickle(path)


VALUE = {"data": PIXELS, "labels": [0, 0, 1, 1], b"names": ("cat", b"dog"), "f": np.float64(0.5)}


@settings(max_examples=300)
@given(
    st.integers(0, 5),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=3),
)
def test_flipped_bytes_give_data_or_one_sentence(protocol: int, flips: list[tuple[float, int]]) -> None:
    content = bytearray(pickle.dumps(VALUE, protocol))
    for place, change in flips:
        content[int(place * len(content))] ^= change
    try:
        found = read_pickle(io.BytesIO(content))
    except DataError:
        return
    only_data(found)


def only_data(value: Any) -> None:
    if isinstance(value, dict | list | tuple):
        for each in [*value, *value.values()] if isinstance(value, dict) else value:
            only_data(each)
    else:
        assert isinstance(value, str | bytes | memoryview | int | float | None | np.ndarray | np.generic)


@given(st.integers(0, 5), st.floats(0, 1, exclude_max=True))
def test_a_cut_pickle_is_always_refused(protocol: int, place: float) -> None:
    content = pickle.dumps(VALUE, protocol)
    with pytest.raises(DataError):
        read_pickle(io.BytesIO(content[: int(place * len(content))]))


@given(st.integers(0, PIXELS.size - 1), st.integers(1, 255))
def test_a_changed_pixel_is_the_only_change(at: int, change: int) -> None:
    content = bytearray(pickle.dumps(VALUE, 4))
    content[content.index(PIXELS.tobytes()) + at] ^= change
    expected = PIXELS.copy()
    expected.reshape(-1)[at] ^= change
    assert same(read_pickle(io.BytesIO(content)), {**VALUE, "data": expected})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.booleans(), inner),
        max_leaves=12,
    ),
    st.integers(0, 5),
)
def test_any_nest_of_plain_values_comes_back(value: Any, protocol: int) -> None:
    assert same(read_pickle(io.BytesIO(pickle.dumps(value, protocol))), value)
