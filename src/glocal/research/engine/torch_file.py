"""A file of ``torch.save``, looked through before torch reads it: torch believes sizes and counts that it is told.

With ``weights_only`` torch runs nothing of a file, but ``bytearray(2**32)`` takes 4 GiB, and numbers chosen to collide
as keys take for ever.  So does a pair of one pair, that of another and so on, forty times, as a key: a file of 500
bytes, and 2**40 values to hash.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass

import torch

MOST_PARTS = 1_000_000  # opcodes of a pickle, and values of what it makes; a state dict of 1,000 weights takes 40,000
DEEPEST = 8  # tuples in tuples; a weight has 3, and to hash 100,000 of them overflows the stack
MOST_LONGS = 1_000  # whole numbers of more than 32 bits
LONGEST = 16  # bytes of one; the mark of old files has 10
OLD_PICKLES = 5  # at the beginning of a file of the format before zip
GROW = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"}
REFUSED = {"bytearray", "builtins bytearray", "__builtin__ bytearray"}


def check_torch_file(content: bytes) -> None:
    """Raises ValueError for what no file of weights needs; whether it is one is for torch to tell."""
    if not content.startswith(b"PK"):
        file = io.BytesIO(content)
        for _ in range(OLD_PICKLES):
            if file.tell() < len(content):  # one with less in it is for torch to refuse
                _check_pickle(file)
        return
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        if any(each.compress_type or each.file_size != each.compress_size for each in entries):
            raise ValueError("its parts are packed, which torch.save does not do")
        if sum(each.file_size for each in entries) > len(content):
            raise ValueError("its parts overlap")
    # By torch's own reader: it takes data.PKL for data.pkl, and may see other entries than zipfile does.
    _check_pickle(io.BytesIO(torch._C.PyTorchFileReader(io.BytesIO(content)).get_record("data.pkl")))


def _check_pickle(file: io.BytesIO) -> None:
    longs, values = 0, _Values()
    for count, (opcode, value, _) in enumerate(pickletools.genops(file)):  # up to the end of one pickle
        if count >= MOST_PARTS:
            raise ValueError(f"its pickle has more than {MOST_PARTS:,} parts")
        if opcode.name in ("LONG", "LONG1", "LONG4", "INT"):
            longs += 1
            if longs > MOST_LONGS or (isinstance(value, int) and value.bit_length() > 8 * LONGEST):
                raise ValueError("its pickle has large numbers that no weights need")
        elif isinstance(value, str) and value in REFUSED:
            raise ValueError("its pickle makes a byte array, which no weights need")
        values.follow(opcode, value)


@dataclass(eq=False, slots=True)
class _Value:
    """What a pickle makes, as far as it can do harm."""

    depth: int = 0  # of tuples in it, wherever they lie
    size: int = 1  # values in it, each as often as somebody who walks through it would come by
    held: bool = False  # by something else, whose size is no longer told when this one grows

    def hold(self, items: Sequence[_Value], *, deeper: int = 0) -> None:
        for each in items:
            each.held = True
        if self.held:  # also by itself
            raise ValueError("its pickle adds to what is already part of something else")
        self.depth = max([self.depth, *(each.depth + deeper for each in items)])
        self.size += sum(each.size for each in items)
        if self.depth > DEEPEST or self.size > MOST_PARTS:
            raise ValueError(f"its pickle has tuples more than {DEEPEST} deep, or the same values over and over")


class _Values:
    """The stack and the memo of an unpickler that makes nothing; opcodes say themselves what they take and leave."""

    def __init__(self) -> None:
        self._stack: list[_Value | None] = []  # None is a mark
        self._memo: dict[object, _Value] = {}

    def follow(self, opcode: pickletools.OpcodeInfo, value: object) -> None:
        name, before = opcode.name, opcode.stack_before
        if name == "MARK":
            self._stack.append(None)
        elif "GET" in name:
            if value not in self._memo:
                raise ValueError("its pickle asks for what it has not put away")
            self._stack.append(self._memo[value])
        elif "PUT" in name:
            self._memo[value] = kept = self._pop()
            self._stack.append(kept)
        else:
            marked = pickletools.markobject in before
            items = self._down_to_mark() if marked else []
            below = before.index(pickletools.markobject) if marked else len(before)
            items += [self._pop() for _ in range(below)]
            if name in GROW:  # the lowest stays, with the others in it
                items[-1].hold(items[:-1])
                self._stack.append(items[-1])
                return
            for _ in opcode.stack_after:
                made = _Value()
                made.hold(items, deeper=int("TUPLE" in name))
                self._stack.append(made)

    def _pop(self) -> _Value:
        found = self._stack.pop() if self._stack else None
        if found is None:
            raise ValueError("its pickle takes what is not there")
        return found

    def _down_to_mark(self) -> list[_Value]:
        items = []
        while self._stack and (found := self._stack.pop()) is not None:
            items.append(found)
        return items
