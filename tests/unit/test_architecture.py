"""docs/architecture.md names files and functions that exist, and the ways are as short as they should be."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
HOPS = re.findall(r"^\| (\d+) \| `([\w/.]+)` \| `([\w.]+)` \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("file", "function"), sorted({(file, function) for _, file, function in HOPS}))
def test_named_functions_exist(file: str, function: str) -> None:
    assert (ROOT / "src" / file).is_file()
    found = importlib.import_module(file.removesuffix("/__init__.py").removesuffix(".py").replace("/", "."))
    for name in function.split("."):
        found = getattr(found, name)
    assert callable(found)


def test_each_way_is_counted_and_short() -> None:
    numbers = [int(number) for number, _, _ in HOPS]
    starts = [i for i, number in enumerate(numbers) if number == 1]
    ways = [numbers[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]
    assert [len(way) for way in ways] == [10, 12, 8, 8]
    assert all(way == list(range(1, len(way) + 1)) for way in ways)
