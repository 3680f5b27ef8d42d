"""Bytes and records that came to harm, from a seeded generator: the same number gives the same damage."""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
import zipfile
from typing import Any

import numpy as np

from glocal.recognizer.tensors import NAMES, pack, unpack

WORDS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1, (1 << 64) - 1)
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 255, 10**6, 2**31, 2**63, 10**400, -(10**30), 0.5, -0.0, 1e-300, 1e308,
    float("nan"), float("inf"), "", "x", "nan", "../x", "/etc/passwd", "\x1b[2J", "\ud800", "x" * 5000, [], {}, [[]],
    [None], {"a": 1}, [1, 2, 3], "unknown", "photos-gel", 1_000_000_007,
)  # fmt: skip


def damaged(rng: random.Random, data: bytes) -> bytes:
    """One to four accidents."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not out:
            return bytes(out)
        at, n = rng.randrange(len(out)), rng.choice((1, 2, 4, 16, 64, 1024))
        how = rng.randrange(8)
        if how == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            del out[at:]
        elif how == 2:
            del out[at : at + n]
        elif how == 3:
            out[at:at] = out[at : at + n]
        elif how == 4:
            out[at:at] = rng.randbytes(n)
        elif how == 5:
            word = rng.choice(WORDS)
            coded = struct.pack(rng.choice("<>") + "Q", word)
            size = rng.choice((1, 2, 4, 8))
            out[at : at + size] = coded[:size] if rng.random() < 0.5 else coded[-size:]
        elif how == 6:
            out[at : at + n] = bytes(len(out[at : at + n]))
        else:
            other = rng.randrange(len(out))
            out[at : at + n] = out[other : other + n]
    return bytes(out)


def twisted(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """A record with one of its values, somewhere, replaced, dropped, added or repeated."""
    if rng.random() < 0.03:
        nested: Any = 0
        for _ in range(rng.choice((40, 300))):
            nested = [nested] if rng.random() < 0.5 else {"a": nested}
        return nested
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name, changed = rng.choice(list(value)), dict(value)
        how = rng.random()
        if how < 0.7:
            changed[name] = twisted(rng, value[name], depth + 1)
        elif how < 0.85:
            del changed[name]
        else:
            changed[rng.choice((*value, "surprise", "x" * 300))] = rng.choice(ODD)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.9:
        at, rest = rng.randrange(len(value)), list(value)
        how = rng.random()
        if how < 0.7:
            rest[at] = twisted(rng, value[at], depth + 1)
        elif how < 0.85:
            del rest[at]
        else:
            rest.insert(at, rest[at] if rng.random() < 0.5 else rng.choice(ODD))
        return rest
    if isinstance(value, bool | str) or value is None or rng.random() < 0.6:
        return rng.choice(ODD)
    return (
        rng.choice((-value, value + 1, value - 1, value * 1e6, value * 0.999)) if isinstance(value, int | float) else 0
    )


def as_json(value: Any) -> bytes:
    if value == 0:  # a whole record that became nothing stands for one that is too deep for the one who writes it
        return b'{"a":' + b"[" * 60_000
    return json.dumps(value, allow_nan=True).encode("utf-8", "surrogatepass")


def twisted_arrays(rng: random.Random, packed: bytes) -> bytes:
    """A safetensors file with other numbers, shapes, kinds or names, whole in itself."""
    arrays = unpack(packed, "seed")
    name = rng.choice(list(arrays))
    array, how = arrays[name].copy(), rng.randrange(8)
    if how == 0 and array.dtype.kind == "f" and array.size:
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice((np.nan, np.inf, -np.inf, 6e4, 0))
    elif how == 1:
        array = np.concatenate([array, array], axis=rng.randrange(max(1, array.ndim)))
    elif how == 2:
        array = array[:-1]
    elif how == 3:
        array = array.reshape(-1)
    elif how == 4:
        array = array.astype(rng.choice(list(NAMES)))
    elif how == 5:
        array = np.zeros_like(array)
    elif how == 6:
        arrays[rng.choice((*arrays, "surprise"))] = array
    else:
        del arrays[name]
        return pack(arrays)
    return pack(arrays | {name: array})


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(members: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", packing) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, packing)
    return buffer.getvalue()


def twisted_recognizer(rng: random.Random, data: bytes) -> bytes:
    """Three of four are whole by every hash, so that they come past the first check."""
    if rng.random() < 0.25:
        return damaged(rng, data)
    members = members_of(data)
    how = rng.random()
    if how < 0.55:
        members["manifest.json"] = as_json(twisted(rng, json.loads(members["manifest.json"])))
        if how < 0.5:
            return zipped(members)
    elif how < 0.75:
        members["support.safetensors"] = twisted_arrays(rng, members["support.safetensors"])
    elif how < 0.9:
        name = rng.choice([each for each in members if each.startswith(("thumbnails/", "probes/"))])
        members[name] = damaged(rng, members[name])
    else:
        name = rng.choice([each for each in members if each.startswith("model")])
        members[name] = damaged(rng, members[name])
    try:
        manifest = json.loads(members["manifest.json"])
        manifest["sha256"] = {name: hashlib.sha256(members[name]).hexdigest() for name in manifest["sha256"]}
        members["manifest.json"] = as_json(manifest)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        pass
    return zipped(members)
