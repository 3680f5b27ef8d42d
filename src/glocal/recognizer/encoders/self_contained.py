"""Whether a graph holds all of its weights.  onnxruntime would read others from files, or from its own memory.

Its bytes are read as protobuf encodes them, because onnx is not installed where photos are answered.  Releases of
onnxruntime differ in which of these places they refuse.
"""

from __future__ import annotations

from collections.abc import Iterator

# By message of ONNX: the fields that lead to tensors, and the message that each holds.
FIELDS = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
NAME, LOCATION = 8, 14  # of a tensor: its name, and where its numbers are, 0 for inside
VARINT, FIXED = 0, {1: 8, 5: 4}  # kinds of fields; by kind, the bytes of a number of fixed length
LENGTH = 2


def check_self_contained(graph: bytes) -> None:
    """ValueError for tensors outside of the graph, and for what is no ONNX graph."""
    waiting = [("model", memoryview(graph))]
    while waiting:
        kind, message = waiting.pop()
        name, outside = "", False
        for field, value in _fields(message):
            if isinstance(value, int):
                outside |= kind == "tensor" and field == LOCATION and value != 0
            elif field in FIELDS[kind]:
                waiting.append((FIELDS[kind][field], value))
            elif kind == "tensor" and field == NAME:
                name = bytes(value[:60]).decode(errors="replace")
        if outside:
            raise ValueError(f"its tensor {name!r} is not inside of the graph; store all weights in the graph itself")


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The number of each field, and its content."""
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _number(message, at)
            yield (key & 0xFFFFFFFF) >> 3, value
            continue
        size, at = (FIXED[kind], at) if kind in FIXED else _number(message, at)
        if kind not in (LENGTH, *FIXED) or at + size > len(message):
            raise ValueError("it is no ONNX graph")
        yield (key & 0xFFFFFFFF) >> 3, message[at : at + size]
        at += size


def _number(message: memoryview, at: int) -> tuple[int, int]:
    """A number of 7 bits a byte, and where the next field begins."""
    value = 0
    for i, byte in enumerate(message[at : at + 10]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, at + i + 1
    raise ValueError("it is no ONNX graph")
