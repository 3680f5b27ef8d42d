"""Pickles that ask for something to be done, that ask for too much, or that came to harm."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np

from hostile import PIXELS, Runs, hostile


def pickled(name: str, words: str, content: bytes) -> None:
    hostile(name, words)(lambda path: path.write_bytes(content) and None)


class _Persistent(pickle.Pickler):
    def persistent_id(self, thing: object) -> object:
        return "elsewhere" if isinstance(thing, bytes) else None


def _array(dtype: str, shape: tuple[int, ...], raw: bytes, order: str = "|") -> bytes:
    """A pickle of an array that claims what it is told to."""

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    axes = b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", n) for n in shape) + b"t"
    kind = (
        b"cnumpy\ndtype\n"
        + text(dtype)
        + b"\x89\x88\x87R(K\x03"
        + text(order)
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    held = b"B" + struct.pack("<I", len(raw)) + raw
    return (
        b"\x80\x03cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01"
        + (axes + kind + b"\x89" + held)
        + b"tb."
    )


# Pickles that ask for something to be done.


for _protocol in range(6):

    @hostile(f"runs-{_protocol}.pkl", r"asks for '(posix|nt|os)\.mkdir'")
    def _(path: Path, protocol: int = _protocol) -> None:
        path.write_bytes(pickle.dumps({"data": PIXELS, "labels": Runs(path)}, protocol))


@hostile("runs-inside-object-array.pkl", "array of dtype 'O8'")
def _(path: Path) -> None:
    path.write_bytes(pickle.dumps({"data": np.array([Runs(path), None], object)}))


@hostile("persistent-id.pkl", "something outside the file")
def _(path: Path) -> None:
    with path.open("wb") as file:
        _Persistent(file, 4).dump({"data": b"picture"})


@hostile("out-of-band-buffer.pkl", "something outside the file")
def _(path: Path) -> None:
    path.write_bytes(pickle.dumps(PIXELS, 5, buffer_callback=lambda _: None))


pickled(
    "eval.pkl", r"asks for 'builtins\.eval'", b"c__builtin__\neval\n(S'1+1'\ntR.".replace(b"__builtin__", b"builtins")
)
pickled("getattr.pkl", r"asks for 'builtins\.getattr'", b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93.")
pickled("numpy-load.pkl", r"asks for 'numpy\.load'", b"\x80\x02cnumpy\nload\nU\x05a.npy\x85R.")
pickled("dotted-name.pkl", r"asks for 'numpy\.ndarray\.tofile'", b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.")
pickled("instance.pkl", "it has an object", b"(i__main__\nData\n.")
pickled("extension.pkl", "something outside the file", b"\x80\x02\x82\x01.")
pickled("new-object.pkl", "it has an object", b"\x80\x02cnumpy\nndarray\n)\x81.")
pickled("bare-class.pkl", "the name of a class", b"cnumpy\nndarray\n.")
pickled("calls-a-list.pkl", "it calls a list", b"\x80\x02]K\x01\x85R.")
pickled("changes-a-dict.pkl", "changes the attributes of a dict", b"\x80\x02}}b.")

# Pickles that ask for too much.

pickled("huge-bytes.pkl", "ends too early", b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x.")
pickled("huge-bytearray.pkl", "ends too early", b"\x80\x05\x96" + struct.pack("<Q", 1 << 33) + b"x.")
pickled("huge-frame.pkl", "asks|ends|damaged|left over", b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N")
pickled("huge-array.pkl", "bytes to fill it with", _array("u1", (1 << 40,), b"x" * 9))
pickled("negative-axis.pkl", "impossible shape", _array("u1", (-1,), b"x" * 9))
pickled("empty-strings.pkl", "array of dtype 'S0'", _array("S0", (1 << 40,), b""))
pickled("objects-from-bytes.pkl", "array of dtype 'O8'", _array("O8", (1,), b"\x01" * 8))  # pointers to anywhere
pickled("made-up-dtype.pkl", "dtype of its own making", _array("u1", (9,), b"x" * 9, order="?"))
pickled("object-array.pkl", "array of dtype 'O8'", pickle.dumps(np.array([1, None], object)))
pickled("bytearray-of-length.pkl", "byte array of a int", b"\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R.")
pickled(
    "copies.pkl",
    "more than 4 times its size",
    b"\x80\x02X\x10'\x00\x00"
    + b"a" * 10_000
    + b"q\x000X\x06\x00\x00\x00latin1q\x010c_codecs\nencode\nq\x020"
    + b"h\x02h\x00h\x01\x86R0" * 10
    + b"N.",
)
pickled("deep.pkl", "more than 32 deep", b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".")
pickled(
    "laughs.pkl",
    "too often",
    b"\x80\x02]"
    + b"("
    + b"K\x01" * 9
    + b"e"
    + b"".join(b"q" + bytes([i]) + b"0](" + (b"h" + bytes([i])) * 9 + b"e" for i in range(20))
    + b".",
)
_COLLIDING = b"".join(b"\x8a\x09" + (i * (2**61 - 1)).to_bytes(9, "little", signed=True) + b"N" for i in range(1, 9))
pickled("colliding-keys.pkl", "a int as a key", b"\x80\x02}(" + _COLLIDING + b"u.")
pickled("list-in-itself.pkl", "contain themselves", b"\x80\x02]q\x00h\x00a.")
pickled("tuple-key.pkl", "a tuple as a key", b"\x80\x02}K\x01\x85" + b"2\x86" * 60 + b"K\x01s.")
# Where text belongs: to write 2**22 numbers takes seconds, 2**60 would take for ever.
_NESTED = b"K\x01\x85" + b"2\x86" * 22
pickled("tuple-dtype.pkl", "a tuple in place of text", b"\x80\x02cnumpy\ndtype\n" + _NESTED + b"\x85R.")
pickled(
    "tuple-byte-order.pkl",
    "a tuple in place of text",
    b"\x80\x02cnumpy\ndtype\nX\x02\x00\x00\x00i8\x85R(K\x03"
    + _NESTED
    + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb.",
)
pickled(
    "tuple-encoding.pkl",
    "a tuple in place of text",
    b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00a" + _NESTED + b"\x86R.",
)

# Pickles that came to harm.

pickled("empty.pkl", "is empty", b"")
pickled("text.pkl", "not a pickle|refused", b"this is no pickle\n")
pickled("cut.pkl", "ends too early", pickle.dumps({"data": PIXELS, "labels": [0, 1]}, 4)[:200])
pickled("stops-early.pkl", "parts left over", b"\x80\x02]K\x01.a.")
pickled("protocol-9.pkl", "unsupported pickle protocol", b"\x80\x09N.")
