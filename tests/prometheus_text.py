"""The text format of Prometheus, read strictly enough to notice a mistake in it."""

from __future__ import annotations

import re

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? (-?[0-9.e+-]+)')


def parsed(text: str) -> dict[str, float]:
    """Name with labels -> value."""
    assert text.endswith("\n")
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        name, labels, value = match.groups()
        family = re.sub(r"_(bucket|count|sum)$", "", name)
        assert name in kinds or family in kinds, line
        assert name + (labels or "") not in found
        found[name + (labels or "")] = float(value)
    return found
