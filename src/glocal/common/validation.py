"""Validate what an untrusted file holds before anything relies on it.

The types of its own fields validate a record, so a new field needs no code here.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from PIL import Image

LARGEST_THUMBNAIL = 512  # pixels a side; ours have 112
SHOWN = 60  # characters of a wrong value
_hints = cache(get_type_hints)


def check_kind(value: Any, kind: Any, where: str) -> None:
    """Refuse what is not of that kind: a table has exactly its keys, [x] is a list of x; all else is a type."""
    waiting = [(value, kind, where)]
    while waiting:
        value, kind, where = waiting.pop()
        if isinstance(kind, dict):
            if not isinstance(value, dict) or value.keys() != kind.keys():
                odd = sorted(value.keys() ^ kind.keys())[:3] if isinstance(value, dict) else shown(value)
                raise ValueError(f"{where} is wrong or not complete: {odd}")
            waiting += [(value[name], own, f"{where}.{name}") for name, own in kind.items()]
        elif isinstance(kind, list) and isinstance(value, list):
            waiting += [(each, kind[0], where) for each in value]
        elif isinstance(kind, list) or not fits(value, kind):
            raise ValueError(f"{where} is of the wrong kind: {shown(value)}")


def check_record(kind: type, fields: Mapping[str, Any]) -> None:
    """Refuse values that do not fit the types of the class's fields, and numbers that are not finite."""
    hints = _hints(kind)
    for name, value in fields.items():
        if not fits(value, hints[name]):
            raise ValueError(f"{name} of a {kind.__name__} is of the wrong kind: {shown(value)}")


def fits(value: Any, hint: Any) -> bool:
    """As JSON has it: a list is a tuple, a whole number may stand for a float."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, each) for each in args)
    if hint is NoneType:
        return value is None
    if hint is float:
        return is_number(value)
    if hint in (int, bool, str, list, dict):
        return type(value) is hint
    if origin in (list, tuple):
        if not isinstance(value, list | tuple):
            return False
        if origin is list or args[-1] is Ellipsis:
            return all(fits(each, args[0]) for each in value)
        return len(value) == len(args) and all(map(fits, value, args))
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(fits(k, args[0]) and fits(each, args[1]) for k, each in value.items())
    raise TypeError(f"no way to check a field of type {hint}")


def is_number(value: Any) -> bool:
    """Finite as a float; of JSON a number may have thousands of digits."""
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:
        return False


def check_picture(data: bytes, kind: str, most: int) -> None:
    """A picture by its header: of that kind and of at most so many pixels a side."""
    try:
        with Image.open(io.BytesIO(data), formats=[kind]) as image:
            width, height = image.size
    except Exception as error:  # readers of damaged bytes fail in many ways
        raise ValueError(f"a picture that is no {kind} ({shown(error)})") from error
    if max(width, height) > most:
        raise ValueError(f"a picture of {width}x{height} pixels, more than {most} a side")


def shown(value: Any) -> str:
    """The beginning of a wrong value, for a sentence; Python cannot write the text of every value."""
    try:
        text = str(value) if isinstance(value, Exception) else repr(value)
    except (RecursionError, ValueError):  # lists a thousand deep, numbers of a thousand digits
        return f"a value of type {type(value).__name__} that is too large to be shown"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
