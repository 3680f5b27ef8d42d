"""A file of ``torch.save``, looked through before torch reads it: torch believes sizes and counts that it is told.

With ``weights_only`` torch runs nothing of a file, but ``bytearray(2**32)`` takes 4 GiB, and numbers chosen to collide
as keys take for ever.
"""

from __future__ import annotations

import io
import pickletools
import zipfile

MOST_PARTS = 1_000_000  # opcodes of a pickle; a state dict of 1,000 weights takes 40,000
MOST_LONGS = 1_000  # whole numbers of more than 32 bits
LONGEST = 16  # bytes of one; the mark of old files has 10
OLD_PICKLES = 5  # at the beginning of a file of the format before zip
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
        for each in entries:
            if each.filename.endswith(".pkl"):
                _check_pickle(io.BytesIO(archive.read(each)))


def _check_pickle(file: io.BytesIO) -> None:
    longs = 0
    for count, (opcode, value, _) in enumerate(pickletools.genops(file)):  # up to the end of one pickle
        if count >= MOST_PARTS:
            raise ValueError(f"its pickle has more than {MOST_PARTS:,} parts")
        if opcode.name in ("LONG", "LONG1", "LONG4", "INT"):
            longs += 1
            if longs > MOST_LONGS or (isinstance(value, int) and value.bit_length() > 8 * LONGEST):
                raise ValueError("its pickle has large numbers that no weights need")
        elif isinstance(value, str) and value in REFUSED:
            raise ValueError("its pickle makes a byte array, which no weights need")
